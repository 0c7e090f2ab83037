//! What is recommended of made searches.

mod sphere;

use super::*;

const DRAWS: Draws = Draws { draws: 500, seed: 1 };

/// 600 persons of a search each way. Strangers score up to 0.5 in even steps; persons from 0.4 up, led by 0.3.
fn calibration() -> Calibration {
    let mated = (0..600).map(|identity| Search {
        identity,
        score: 0.4 + identity as f32 / 1200.0,
        margin: Some(0.3),
        is_right: identity % 100 != 7,
    });
    let non_mated = (0..600).map(|identity| Search {
        identity,
        score: identity as f32 / 1200.0,
        margin: Some(0.05),
        is_right: false,
    });
    Calibration::of_searches(mated.collect(), non_mated.collect(), 600, DRAWS)
}

/// A gallery of one person knows no margin, so a threshold is given all the same: one that misses nobody.
#[test]
fn where_a_margin_alone_would_do_the_threshold_is_that_of_the_last_who_are_recognised() {
    let best = calibration().recommend(0.02);
    let Rates { threshold, min_margin, false_positives, misses, wrong } = best.promised.unwrap().rates;
    assert!(threshold > 0.399 && threshold <= 0.4, "{best:?}");
    assert!(best.why_not.is_none() && min_margin > 0.05, "{best:?}");
    // Six of six hundred are nearest to somebody else, whatever the threshold.
    assert!((misses.rate - 0.01).abs() < 1e-9, "{best:?}");
    assert!((wrong.rate - 0.01).abs() < 1e-9 && false_positives.rate <= 0.0);
}

/// A wished-for rate is the most that is accepted, not a reason to name strangers for nothing.
#[test]
fn no_stranger_is_named_where_that_finds_nobody() {
    let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
    let mated = (0..12).map(|identity| search(identity, 0.95 + identity as f32 / 1000.0, true));
    let non_mated = (0..12).map(|identity| search(identity, if identity < 2 { 0.94 } else { 0.5 }, false));
    let calibration = Calibration::of_searches(mated.collect(), non_mated.collect(), 12, DRAWS);
    let best = calibration.recommend(0.9);
    for best in [best.estimated, best.promised].map(|pair| pair.unwrap().rates) {
        assert!(best.false_positives.rate <= 0.0 && best.misses.rate <= 0.0, "{best:?}");
        assert!((best.threshold - 0.945).abs() < 2e-4, "{best:?}");
    }
}

/// All these wishes are met by refusing every stranger and nobody else, and a stricter one shows no more lenient threshold for it.
#[test]
fn wishes_that_the_same_persons_meet_show_the_same_pair() {
    let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
    let mated = (0..12).map(|identity| search(identity, 0.95, true));
    let non_mated = (0..12).map(|identity| search(identity, if identity < 2 { 0.94 } else { 0.5 }, false));
    let calibration = Calibration::of_searches(mated.collect(), non_mated.collect(), 12, DRAWS);
    let of = |wished| calibration.recommend(wished).estimated.unwrap().rates.threshold;
    assert!((of(0.9) - 0.945).abs() < 2e-4);
    for wished in [0.001, 0.01, 0.1, 0.5] {
        assert_eq!(of(wished).to_bits(), of(0.9).to_bits(), "{wished}");
    }
}

/// Of one person nobody is a stranger: no threshold is better than another.
#[test]
fn without_a_stranger_nothing_is_recommended() {
    let search = Search { identity: 0, score: 0.9, margin: None, is_right: true };
    let best = Calibration::of_searches(vec![search; 3], Vec::new(), 1, DRAWS).recommend(0.1);
    assert_eq!((best.estimated.is_none(), best.promised.is_none()), (true, true));
    assert_eq!(best.why_not, Some(WhyNot::TooFewIdentities));
}

#[test]
fn the_least_threshold_is_the_first_that_keeps_the_rate() {
    let calibration = calibration();
    let under = calibration.least_threshold(0.0, &|under| calibration.shares(under).0 <= 0.1).unwrap();
    // 60 of 600 reach 540 / 1200.
    assert!((under.threshold.get() - 0.4493).abs() < 2e-4, "{under:?}");
    assert!(calibration.shares(cut(under.threshold.get() - 0.001, 0.0)).0 > 0.1);
}

#[test]
fn too_few_persons_promise_nothing() {
    let best = calibration().recommend(0.001);
    assert_eq!((best.promised, best.why_not), (None, Some(WhyNot::TooFewIdentities)));
    // 0.999^4603 is the first below 0.01; five margins share an error of 5 %, and two persons are worth one.
    assert_eq!(best.identities_needed, Some(2 * 4603));
    let estimated = best.estimated.unwrap();
    assert!(estimated.at_most > 0.001 && estimated.rates.false_positives.rate <= 0.0);
    let none = Calibration::of_searches(Vec::new(), Vec::new(), 0, DRAWS).recommend(0.01);
    assert_eq!((none.estimated, none.promised, none.why_not), (None, None, Some(WhyNot::NoMatedSearch)));
}

/// Strangers as they come, and persons who score no higher: an estimate goes by what was found, a promise by what may be.
#[test]
fn an_estimate_is_no_promise() {
    let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
    let score = |identity: u32| identity as f32 / 2000.0;
    let mated = (0..2000).map(|identity| search(identity, score(identity), true)).collect();
    let non_mated = (0..2000).map(|identity| search(identity, score(identity), false)).collect();
    let best = Calibration::of_searches(mated, non_mated, 2000, DRAWS).recommend(0.05);
    let (promise, estimate) = (best.promised.unwrap(), best.estimated.unwrap());
    assert!(promise.at_most <= 0.05 && estimate.at_most > 0.05, "{best:?}");
    // 100 of 2000 are found where 5 % are wished for.
    assert!((estimate.rates.false_positives.rate - 0.05).abs() < 1e-9, "{estimate:?}");
    // 38 of 1000 is the most of which Clopper and Pearson say at most 5 % (one-sided, 95 %).
    assert!((promise.rates.false_positives.rate - 0.038).abs() < 1e-9, "{promise:?}");
    assert!(estimate.rates.misses.rate < promise.rates.misses.rate);
}

/// Whoever is asked about scores 1 against everybody, and leads nobody.
#[test]
fn where_all_look_the_same_it_is_no_matter_of_how_many_there_are() {
    for persons in [12, 2000] {
        let same = |is_right| move |identity| Search { identity, score: 1.0, margin: Some(0.0), is_right };
        let mated = (0..persons).map(same(true)).collect();
        let non_mated = (0..persons).map(same(false)).collect();
        let best = Calibration::of_searches(mated, non_mated, persons as usize, DRAWS).recommend(0.01);
        assert_eq!((best.estimated, best.promised, best.identities_needed), (None, None, None));
        assert_eq!(best.why_not, Some(WhyNot::NotToldApart));
    }
}

/// Where as many are named at best as are wished for, more of the same persons promise no less.
#[test]
fn no_number_of_persons_promises_what_is_found_at_best() {
    let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
    let mated = (0..8).map(|identity| search(identity, 0.5, true)).collect();
    let non_mated = (0..8).map(|identity| search(identity, if identity < 2 { 0.9 } else { 0.1 }, false));
    let best = Calibration::of_searches(mated, non_mated.collect(), 8, DRAWS).recommend(0.25);
    assert_eq!((best.why_not, best.identities_needed), (Some(WhyNot::TooFewIdentities), None));
    assert!(
        (best.estimated.unwrap().rates.false_positives.rate - 0.25).abs() < 1e-9 && best.promised.is_none()
    );
}

/// What strangers reach, persons do not, so that refusing the ones refuses the others.
#[test]
fn persons_below_all_strangers_are_not_told_apart() {
    let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
    let mated = (0..2000).map(|identity| search(identity, 0.3, true)).collect();
    let non_mated = (0..2000).map(|identity| search(identity, 0.4, false)).collect();
    let best = Calibration::of_searches(mated, non_mated, 2000, DRAWS).recommend(0.01);
    assert_eq!((best.estimated, best.promised, best.why_not), (None, None, Some(WhyNot::NotToldApart)));
}

#[test]
fn rates_are_shares_of_their_own_searches() {
    let rates = calibration().rates(cut(0.45, 0.0));
    // 0.4 + i / 1200 >= 0.45 for i >= 60; of those six are of others.
    assert!((rates.misses.rate - (600.0 - 534.0) / 600.0).abs() < 0.002, "{rates:?}");
    assert!((rates.false_positives.rate - 0.1).abs() < 0.002, "{rates:?}");
    assert!(rates.misses.low < rates.misses.rate && rates.misses.rate < rates.misses.high);
}
