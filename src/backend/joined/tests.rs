//! Shares scanned by the reference, and what becomes of their claims.

use std::time::Duration;

use super::*;
use crate::backend::reference::ReferenceBackend;
use crate::backend::{Ask, BackendName, Candidate, RowSet};

/// The reference over one half of the rows.
struct Half {
    inner: ReferenceBackend,
    /// The first half, or the second.
    place: usize,
    /// Whether it makes the strongest claim.
    exact: bool,
}

struct HalfRows {
    inner: Box<dyn Loaded>,
    rows: (u32, u32),
    all: u32,
    exact: bool,
}

impl Backend for Half {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        let (all, middle) = (rows.rows() as u32, rows.rows() as u32 / 2);
        let own = if self.place == 0 { (0, middle) } else { (middle, all) };
        Ok(Box::new(HalfRows { inner: self.inner.load(rows)?, rows: own, all, exact: self.exact }))
    }
}

impl Loaded for HalfRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        if job.asks[0].k == FAILS {
            return Err(BackendError::Device { device: "half".to_owned(), reason: "made to".to_owned() });
        }
        let skips: Vec<RowSet> = job
            .asks
            .iter()
            .map(|ask| {
                let mut ranges = ask.skip.ranges().to_vec();
                ranges.extend([(0, self.rows.0), (self.rows.1, self.all)]);
                RowSet::from_ranges(ranges)
            })
            .collect();
        let asks: Vec<Ask<'_>> =
            job.asks.iter().zip(&skips).map(|(ask, skip)| Ask { k: ask.k, skip }).collect();
        self.inner.screen(&ScreenJob { asks: &asks, ..*job }, into)?;
        for (found, ask) in into.probes.iter_mut().zip(&asks) {
            found.rows.sort_by(|a, b| b.raw.total_cmp(&a.raw).then(a.row.cmp(&b.row)));
            found.rows.truncate(ask.k);
            found.coverage = match found.rows.get(ask.k - 1) {
                _ if self.exact => Coverage::Exact,
                Some(last) => Coverage::below_raw(last.raw, SCORE_ROUNDING),
                None => Coverage::All,
            };
        }
        Ok(())
    }
}

/// What makes the second half fail, and the first one too.
const FAILS: usize = 99;

fn joined(exact: [bool; 2]) -> Joined {
    let half = |place: usize| {
        let exact = exact[place];
        Guarded::start("half", Duration::from_secs(10), move || {
            Ok(Half { inner: ReferenceBackend::default(), place, exact })
        })
        .unwrap()
    };
    Joined::new(vec![half(0), half(1)])
}

/// Rows that turn away from the x axis, the odd ones twice as fast.
fn fan(rows: usize) -> Matrix {
    let mut matrix = Matrix::with_capacity(rows, 2);
    for row in 0..rows {
        let angle = row as f32 * if row % 2 == 0 { 0.01 } else { 0.02 };
        matrix.push(&[angle.cos(), angle.sin()]);
    }
    matrix
}

fn screen(loaded: &mut dyn Loaded, k: usize, skip: &RowSet) -> Result<Screened, BackendError> {
    let probes = Matrix::from_rows(2, [&[1.0_f32, 0.0][..]]);
    let mut screened = Screened::default();
    loaded.screen(&ScreenJob { probes: &probes, asks: &[Ask { k, skip }], attempt: 0 }, &mut screened)?;
    Ok(screened)
}

#[test]
fn two_halves_answer_as_one_whole() {
    let rows = Arc::new(fan(41));
    let skip = RowSet::from_ranges(vec![(0, 3), (19, 22)]);
    let mut whole = ReferenceBackend::default().load(&rows).unwrap();
    for exact in [[false, false], [true, true], [true, false]] {
        let mut halves = joined(exact).load_rows(&rows).unwrap();
        for k in [1, 5, 34, 50] {
            let expected = screen(&mut *whole, k, &skip).unwrap();
            let found = screen(&mut halves, k, &skip).unwrap();
            let best = |screened: &Screened| {
                let mut rows = screened.probes[0].rows.clone();
                rows.sort_by(|a, b| b.raw.total_cmp(&a.raw).then(a.row.cmp(&b.row)));
                rows.truncate(k);
                rows
            };
            assert_eq!(best(&found), best(&expected), "{exact:?}, k {k}");
            let coverage = found.probes[0].coverage;
            match exact {
                [true, true] => assert_eq!(coverage, Coverage::Exact),
                _ => assert!(matches!(coverage, Coverage::All | Coverage::AtMost(_)), "{coverage:?}"),
            }
        }
    }
}

#[test]
fn a_device_that_fails_fails_the_scan_and_no_answer_is_taken_for_another() {
    let rows = Arc::new(fan(20));
    let none = RowSet::default();
    let mut halves = joined([true, true]).load_rows(&rows).unwrap();
    assert!(screen(&mut halves, FAILS, &none).is_err());
    let found = screen(&mut halves, 2, &none).unwrap();
    assert!(found.probes[0].rows.contains(&Candidate { row: 0, raw: 1.0 }));
}

#[test]
fn a_claim_holds_for_all_shares_or_is_weakened() {
    let candidates = |scores: &[f32], coverage| Candidates {
        rows: scores.iter().map(|&raw| Candidate { row: 0, raw }).collect(),
        coverage,
        bound: 0.25,
    };
    let join = |shares: &[Candidates], k| {
        let mut found = Candidates::default();
        super::join(shares.iter(), k, &mut found);
        assert_eq!((found.bound, found.rows.len()), (0.25, shares.iter().map(|one| one.rows.len()).sum()));
        found.coverage
    };
    let exact = || candidates(&[0.9, 0.7, 0.8], Coverage::Exact);
    let at_most = |score| candidates(&[0.5], Coverage::AtMost(score));
    assert_eq!(join(&[exact(), exact()], 2), Coverage::Exact);
    assert_eq!(join(&[candidates(&[], Coverage::All), exact()], 2), Coverage::Exact);
    assert_eq!(join(&[candidates(&[], Coverage::All), candidates(&[], Coverage::All)], 2), Coverage::All);
    assert_eq!(join(&[at_most(0.3), at_most(0.4), candidates(&[], Coverage::All)], 2), Coverage::AtMost(0.4));
    assert_eq!(join(&[at_most(0.3), candidates(&[], Coverage::Unknown)], 2), Coverage::Unknown);
    // The third of an exact share is the least that it knows of; of two that were asked for, the second.
    assert_eq!(join(&[exact(), at_most(0.4)], 2), Coverage::below_raw(0.8, SCORE_ROUNDING));
    assert_eq!(join(&[exact(), at_most(0.4)], 3), Coverage::below_raw(0.7, SCORE_ROUNDING));
    assert_eq!(join(&[exact(), at_most(0.4)], 4), Coverage::AtMost(0.4), "all of its rows are there");
}

#[test]
fn devices_are_counted_by_name() {
    assert_eq!(counted(["A", "B", "A"].into_iter()), "2 x A + B");
    assert_eq!(counted(["A"].into_iter()), "A");
    let two = joined([true, true]);
    assert_eq!(two.description().backend, BackendName::Reference);
    assert!(two.description().device.starts_with("2 x "), "{}", two.description().device);
}
