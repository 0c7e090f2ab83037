//! The measurement, its arithmetic and, on PoCL, the whole of it. They fail where PoCL is missing.

use std::fs;

use super::*;
use crate::backend::opencl::lanes::Strategy;
use crate::backend::opencl::rows::Placement;
use crate::backend::opencl::tests::{open, own_kernels, settings, unit_rows};
use crate::config::CacheDir;

fn right(scan_ns: u64) -> Outcome {
    Outcome::Right { scan_ns, merge_ns: 0 }
}

#[test]
fn what_is_wrong_or_hardly_faster_is_not_taken() {
    assert!(faster(&right(90), &right(100)) && !faster(&right(99), &right(100)));
    let wrong = Outcome::Wrong("a score".to_owned());
    assert!(faster(&right(90), &wrong) && !faster(&wrong, &right(100)));
    assert!(!faster(&wrong, &wrong) && !faster(&Outcome::NotMeasured, &right(100)));
}

#[test]
fn rows_are_as_many_as_the_time_allows() {
    let plan = Affordable {
        trials: 50,
        repeats: 4,
        compile: Duration::from_millis(500),
        sample: Duration::from_millis(10),
    };
    // A second a variant, half of it the compiler's, for ten runs of which each may take 50 ms.
    assert_eq!(plan.rows(Duration::from_secs(50), 16_384), 5 * 16_384);
    assert_eq!(plan.rows(Duration::from_secs(10), 16_384), 16_384, "no fewer than were sampled");
}

#[test]
fn a_table_marks_the_fastest_that_is_right() {
    let work = TuneWork { rows: 1000, probes: 10, dim: 100 };
    let variant = Tuning::WIDE.many;
    let outcomes = [right(200_000), Outcome::Wrong("x".to_owned()), right(100_000), Outcome::NotMeasured];
    let outcomes = outcomes.into_iter().map(|outcome| ("a".to_owned(), variant, outcome)).collect();
    let table = TuneTable::new("an experiment", work, outcomes);
    let best: Vec<bool> = table.lines.iter().map(|line| line.best).collect();
    assert_eq!(best, [false, false, true, false]);
    let rates: Vec<_> = table.lines.iter().map(|line| line.mvectors_per_s.map(f64::round)).collect();
    assert_eq!(rates, [Some(50.0), None, Some(100.0), None]);
    // 100 million dot products of 100 products and 100 sums a second.
    assert_eq!(table.lines[2].gops.map(f64::round), Some(20.0));
    assert_eq!(table.lines[1].fault.as_deref(), Some("x"));
}

#[test]
fn the_winner_is_kept_and_serves_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let cache_dir = CacheDir::Folder(folder.path().to_owned());
    let settings = OpenClSettings { cache_dir, ..settings() };
    let plan = TunePlan {
        rows: Arc::new(unit_rows(3001, 16, 1)),
        probes: unit_rows(16, 16, 2),
        top_k: 8,
        repeats: 1,
        budget: Duration::from_secs(20),
    };
    let mut told = Vec::new();
    let report = tune(&settings, &plan, &mut |done, of, _| told.push((done, of))).unwrap();
    assert_eq!((report.work, report.rows_asked), (TuneWork { rows: 3001, probes: 16, dim: 16 }, 3001));
    assert_eq!(report.experiments.len(), Axis::ALL.len());
    for table in &report.experiments {
        let of = |verdict| table.lines.iter().filter(|line| line.verdict == verdict).count();
        let (right, late) = (of(Verdict::Right), of(Verdict::NotMeasured));
        assert_eq!(right + late, table.lines.len(), "{table:?}");
        assert_eq!(table.lines.iter().filter(|line| line.best).count(), right.min(1), "{table:?}");
    }
    assert!(told.windows(2).all(|pair| pair[0].0 <= pair[1].0) && told.iter().all(|(done, of)| done <= of));
    let winner = report.winner.unwrap();
    assert!(report.times_default >= 1.0 && winner.verdict == Verdict::Right);
    // The default stays where what was found is not certainly faster.
    assert!(report.within_noise.is_none() || winner.variant == report.default.variant);
    assert!(report.stored.unwrap().starts_with(folder.path()));
    // Nobody measured with few probes.
    let serving = open(&settings).engine.borrow().tuning;
    assert_eq!((serving.many.to_string(), serving.few), (winner.variant, Tuning::NARROW.few));
}

#[test]
fn a_variant_that_is_wrong_is_shown_as_wrong_and_cannot_win() {
    let (folder, own) = own_kernels();
    let path = folder.path().join("lists.cl");
    let text = fs::read_to_string(&path).unwrap();
    let sound = "scores[place - 1] < score";
    assert_eq!(text.matches(sound).count(), 1);
    fs::write(&path, text.replace(sound, "scores[place - 1] > score")).unwrap();
    let backend = open(&own);
    let engine = &mut *backend.engine.borrow_mut();
    let (rows, probes) = (Arc::new(unit_rows(1500, 16, 3)), unit_rows(5, 16, 4));
    let placement = Placement { chunk_rows: 1000, ..backend.placement(0) };
    let parts = Parts { rows, probes: &probes, placement, budget: &backend.budget };
    let mut rig = Rig::new(engine, &parts).unwrap();
    let base = Trial { variant: Tuning::WIDE.many, stage: Stage::Full, list: 8 };
    let sorted = Variant { strategy: Strategy::SortedInsertion, ..base.variant };
    let sorted = Trial { variant: sorted, ..base };
    assert_eq!(rig.outcome(sorted), Outcome::NotMeasured, "the time is over before it began");
    rig.until(Instant::now() + Duration::from_mins(10));
    let outcome = rig.outcome(sorted);
    assert!(matches!(outcome, Outcome::Wrong(_)), "{outcome:?}");
    let sound = rig.outcome(base);
    assert!(sound.elapsed_ns().is_some(), "{sound:?}");
    assert!(!faster(&outcome, &sound));
}
