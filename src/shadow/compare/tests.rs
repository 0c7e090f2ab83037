//! A table of what may differ and how it is called, and what holds for all answers.

use proptest::prelude::*;

use super::*;
use crate::domain::{Margin, Threshold};
use crate::recognize::decision::{Cut, decide};
use crate::telemetry::ShadowKind::{Agree, Borderline, Decision as Decided, Identity, Order, Score};

const TOLERANCE: f32 = 1e-5;

fn cut() -> Cut {
    Cut { threshold: Threshold::parse(0.5).unwrap(), min_margin: Margin::parse(0.05).unwrap() }
}

fn place(index: u64, identity: usize, score: f32) -> Place {
    Place { index, identity, score, raw: Some(score) }
}

/// A recognition of these candidates, each an identity's best.
fn recognized(places: Vec<Place>) -> Said {
    let score = |place: usize| places.get(place).map(|place| place.score);
    let verdict = Some(decide(score(0), score(1), cut()));
    Said { verdict, places, check: RawCheck { error: 0.0, bound: 1e-6, violations: 0 } }
}

fn found(places: Vec<Place>) -> Said {
    Said { verdict: None, ..recognized(places) }
}

fn kinds(primary: &Said, shadow: &Said) -> Vec<ShadowKind> {
    compare(Sides { primary, shadow }, TOLERANCE).kinds
}

fn usual() -> Vec<Place> {
    vec![place(7, 1, 0.8), place(3, 2, 0.6), place(9, 3, 0.4)]
}

#[test]
fn what_is_the_same_agrees() {
    for said in [recognized(usual()), found(usual()), recognized(Vec::new()), found(Vec::new())] {
        assert_eq!(kinds(&said, &said), [Agree]);
    }
    // An honest error of what was computed is no difference.
    let mut said = recognized(usual());
    said.places[0].raw = Some(0.8 + 9e-7);
    said.check.error = 9e-7;
    assert_eq!(kinds(&recognized(usual()), &said), [Agree]);
    // A row that a scan at full precision found has no such score.
    said.places[1].raw = None;
    assert_eq!(kinds(&recognized(usual()), &said), [Agree]);
}

#[test]
fn every_real_difference_has_its_name() {
    let primary = recognized(usual());
    let with = |change: &dyn Fn(&mut Vec<Place>)| {
        let mut places = usual();
        change(&mut places);
        recognized(places)
    };
    // The nearest is left out: another person, and the decision may be another one too.
    assert_eq!(
        kinds(
            &primary,
            &with(&|places| {
                places.remove(0);
            })
        ),
        [Identity, Order]
    );
    assert_eq!(
        kinds(
            &primary,
            &with(&|places| {
                places.drain(..2);
            })
        ),
        [Decided, Identity, Order, Score]
    );
    assert_eq!(kinds(&primary, &recognized(Vec::new())), [Decided, Identity, Order, Score]);
    assert_eq!(kinds(&primary, &with(&|places| places[2] = place(8, 4, 0.3))), [Order]);
    assert_eq!(
        kinds(
            &primary,
            &with(&|places| {
                places.pop();
            })
        ),
        [Order]
    );
    // The same person by another of his rows.
    assert_eq!(kinds(&primary, &with(&|places| places[0] = place(6, 1, 0.79))), [Order, Score]);
    // Served scores are exact on both sides.
    assert_eq!(kinds(&primary, &with(&|places| places[2].score = 0.41)), [Score]);
}

#[test]
fn a_score_computed_wrongly_shows_whatever_became_of_it() {
    let primary = recognized(usual());
    let wrong = |change: &dyn Fn(&mut Said)| {
        let mut said = recognized(usual());
        change(&mut said);
        let comparison = compare(Sides { primary: &primary, shadow: &said }, TOLERANCE);
        assert_eq!(
            compare(Sides { primary: &said, shadow: &primary }, TOLERANCE).wrong_scores,
            Sides { primary: true, shadow: false }
        );
        assert_eq!(comparison.wrong_scores, Sides { primary: false, shadow: true });
        comparison
    };
    let scaled =
        wrong(&|said| said.places.iter_mut().for_each(|place| place.raw = Some(place.score * 1.001)));
    assert_eq!(scaled.kinds, [Score]);
    assert!((scaled.score_error - 8e-4).abs() < 1e-6);
    assert!(wrong(&|said| said.places[1].raw = Some(f32::NAN)).score_error.is_infinite());
    // Of a candidate that verification threw out.
    assert_eq!(wrong(&|said| said.check.error = 0.3).kinds, [Score]);
    assert_eq!(wrong(&|said| said.check.violations = 1).kinds, [Score]);
}

#[test]
fn what_a_backend_allows_itself_is_not_wrong() {
    let mut coarse = recognized(usual());
    coarse.check = RawCheck { error: 0.004, bound: 0.005, violations: 0 };
    coarse.places[0].raw = Some(0.803);
    assert_eq!(kinds(&recognized(usual()), &coarse), [Agree]);
}

#[test]
fn ties_within_the_tolerance_are_borderline() {
    let tied = vec![place(7, 1, 0.8), place(3, 2, 0.799_995), place(9, 3, 0.4)];
    let swapped = vec![place(3, 2, 0.799_995), place(7, 1, 0.8), place(9, 3, 0.4)];
    assert_eq!(kinds(&found(tied.clone()), &found(swapped.clone())), [Borderline]);
    assert_eq!(kinds(&recognized(tied.clone()), &recognized(swapped)), [Borderline]);
    // A row that was not listed ties with the last that was.
    let mut other = tied.clone();
    other[2] = place(11, 5, 0.399_995);
    assert_eq!(kinds(&found(tied.clone()), &found(other)), [Borderline]);
    // It does not tie with the first, whatever score it claims: it would have been listed.
    let mut liar = tied.clone();
    liar[0] = place(11, 5, 0.8);
    assert_eq!(kinds(&found(tied), &found(liar)), [Identity, Order]);
    let mut off = usual();
    off[1].score += 4e-6;
    assert_eq!(kinds(&found(usual()), &found(off)), [Borderline]);
}

#[test]
fn a_decision_whose_cut_lies_within_the_tolerance_is_borderline() {
    let at = |score: f32| recognized(vec![place(7, 1, score), place(3, 2, 0.1)]);
    assert_eq!(kinds(&at(0.5), &at(0.499_995)), [Borderline]);
    assert_eq!(kinds(&at(0.5), &at(0.499_9)), [Decided, Score]);
    let lead = |second: f32| recognized(vec![place(7, 1, 0.8), place(3, 2, second)]);
    assert_eq!(lead(0.749).verdict.unwrap().decision, Decision::Recognized);
    assert_eq!(kinds(&lead(0.749_995), &lead(0.750_004)), [Borderline]);
    // The cut is another one: not the scores, but what was decided by.
    let mut other_cut = at(0.5);
    other_cut.verdict =
        Some(decide(Some(0.5), Some(0.1), Cut { threshold: Threshold::parse(0.500_001).unwrap(), ..cut() }));
    assert_eq!(kinds(&at(0.5), &other_cut), [Decided]);
    let mut displaced = at(0.5);
    displaced.verdict.as_mut().unwrap().decision = Decision::Displaced;
    assert_eq!(kinds(&at(0.5), &displaced), [Decided]);
}

#[test]
fn the_overlap_is_the_share_of_the_primarys_rows() {
    let overlap = |a: &Said, b: &Said| compare(Sides { primary: a, shadow: b }, TOLERANCE).overlap;
    let half = found(vec![place(7, 1, 0.8), place(100, 2, 0.6)]);
    assert!((overlap(&found(usual()), &half) - 1.0 / 3.0).abs() < 1e-6);
    assert!((overlap(&half, &found(usual())) - 0.5).abs() < 1e-6);
    assert!((overlap(&found(Vec::new()), &found(Vec::new())) - 1.0).abs() < 1e-6);
    assert!(overlap(&found(Vec::new()), &half).abs() < 1e-6);
}

/// Distinct rows of distinct identities with scores that fall by more than the tolerance.
fn lists() -> impl Strategy<Value = Vec<Place>> {
    prop::collection::vec((1e-4_f32..0.1, 0_u64..5), 1..12).prop_map(|steps| {
        let mut score = 1.0;
        let mut places = Vec::new();
        for (place_number, (step, salt)) in steps.into_iter().enumerate() {
            score -= step;
            places.push(place(10 * place_number as u64 + salt, place_number, score));
        }
        places
    })
}

proptest! {
    #[test]
    fn equal_results_never_disagree(places in lists(), tolerance in 0.0_f32..0.01) {
        for said in [recognized(places.clone()), found(places)] {
            let comparison = compare(Sides { primary: &said, shadow: &said }, tolerance);
            prop_assert_eq!(comparison.kinds, vec![Agree]);
            prop_assert_eq!(comparison.overlap.to_bits(), 1.0_f32.to_bits());
        }
    }

    #[test]
    fn a_swapped_identity_always_disagrees(places in lists(), other in 1_usize..12) {
        let other = other % places.len();
        prop_assume!(other != 0);
        // Who stands first is exchanged, with or without the scores.
        let mut rows = places.clone();
        rows.swap(0, other);
        let mut names = places.clone();
        (names[0].index, names[0].identity) = (places[other].index, places[other].identity);
        (names[other].index, names[other].identity) = (places[0].index, places[0].identity);
        for swapped in [rows, names] {
            for (a, b) in [(found(places.clone()), found(swapped.clone())), (recognized(places.clone()), recognized(swapped))] {
                prop_assert!(kinds(&a, &b).contains(&Identity));
                prop_assert!(kinds(&b, &a).contains(&Identity));
            }
        }
    }

    #[test]
    fn kinds_are_told_most_serious_first_and_once(a in lists(), b in lists()) {
        use crate::telemetry::Label;
        let told = kinds(&recognized(a), &recognized(b));
        let severity = |kind: &ShadowKind| ShadowKind::ALL.iter().position(|one| one == kind);
        prop_assert!(told.is_sorted_by(|a, b| severity(a) < severity(b)) && !told.is_empty());
    }
}
