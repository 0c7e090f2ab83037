//! Backends that compute rightly pass, and every way to compute wrongly fails, by its name.

use super::*;
use crate::backend::reference::ReferenceBackend;
use crate::backend::{Candidate, Description, Loaded};

/// What is done to a sound answer.
type Spoil = fn(&mut Screened, &ScreenJob<'_>);

/// The reference, and what is done to its answers.
struct Spoilt(ReferenceBackend, Spoil);

struct SpoiltRows(Box<dyn Loaded>, Spoil);

impl Backend for Spoilt {
    fn description(&self) -> &Description {
        self.0.description()
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        Ok(Box::new(SpoiltRows(self.0.load(rows)?, self.1)))
    }
}

impl Loaded for SpoiltRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        self.0.screen(job, into)?;
        (self.1)(into, job);
        Ok(())
    }
}

fn run_spoilt(spoil: Spoil) -> Result<(), String> {
    run(|_| Ok(Spoilt(ReferenceBackend::default(), spoil)))
}

fn first(screened: &mut Screened) -> &mut Candidates {
    &mut screened.probes[0]
}

#[test]
fn what_computes_rightly_passes() {
    assert_eq!(run_spoilt(|_, _| ()), Ok(()));
}

#[test]
fn every_way_to_compute_wrongly_is_named() {
    let faults: [(Spoil, &str); 9] = [
        (|screened, _| screened.invalid_indices = 2, "one row: 2 row numbers that do not exist"),
        (|screened, _| first(screened).rows[0].raw += 1e-3, "one row: probe 0: the score of row 0 is off by"),
        (
            |screened, _| first(screened).rows[0].raw = f32::NAN,
            "one row: probe 0: the score of row 0 is off by NaN",
        ),
        (|screened, _| first(screened).bound = f32::INFINITY, "one row: probe 0: an error bound of inf"),
        (
            |screened, _| first(screened).coverage = Coverage::Unknown,
            "one row: probe 0: the scan proved nothing",
        ),
        (|screened, _| first(screened).rows.clear(), "one row: probe 0: 0 rows of 1"),
        (
            |screened, _| {
                let rows = &mut first(screened).rows;
                if rows.len() == 7 {
                    rows[3] = rows[2];
                }
            },
            "fewer rows than k, lists of 8: probe 0: row",
        ),
        (
            // The best row is lost.
            |screened, job| {
                let found = first(screened);
                if job.asks[0].k == 90 {
                    found.rows.sort_by(|a, b| b.raw.total_cmp(&a.raw));
                    let best = found.rows.remove(0).row;
                    let others = found.rows.iter().map(|one| one.row).chain([best]).collect::<Vec<_>>();
                    let row = (0..ROWS as u32).find(|row| !others.contains(row)).unwrap();
                    let raw = exact(job.probes.row(0), vectors(ROWS, 1).row(row as usize)) as f32;
                    found.rows.push(Candidate { row, raw });
                }
            },
            "lists of 128: probe 0: a row left out scores",
        ),
        (
            |screened, job| {
                if let Some((place, _)) = job.asks.iter().enumerate().find(|(_, ask)| !ask.skip.is_empty()) {
                    let row = job.asks[place].skip.ranges()[0].0;
                    screened.probes[place].rows.push(Candidate { row, raw: 0.0 });
                }
            },
            "rows left out of lists: probe 1: row 1 was to be left out",
        ),
    ];
    for (spoil, expected) in faults {
        let told = run_spoilt(spoil).unwrap_err();
        assert!(told.starts_with(expected), "{told} begins with {expected}");
    }
}
