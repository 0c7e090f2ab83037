//! What would change without a prototype: every other prototype that has it among its nearest is asked about again, it and its own row left out.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Standing, outcome};
use crate::engine::EngineError;
use crate::quality::ask::{Asking, OnDone, row_as_probe};
use crate::quality::validate::Outcome;
use crate::recognize::Exclusions;

/// What would change without one prototype, of the decisions about all others, each with its own row left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// Decisions that would become right.
    pub mended: usize,
    /// Decisions that would no longer be.
    pub broken: usize,
}

/// The effect of removing each of these rows, alone; `standings` are of all rows, in physical order.
pub async fn effects(
    asking: &Asking<'_>,
    standings: &[Standing],
    rows: &[usize],
    on_done: OnDone<'_>,
) -> Result<BTreeMap<usize, Effect>, EngineError> {
    let snapshot = asking.snapshot;
    let mut effects: BTreeMap<usize, Effect> = rows.iter().map(|row| (*row, Effect::default())).collect();
    // Only the nearest own row and the nearest of the two best others have a say in a decision.
    let mut cases: Vec<(usize, usize)> = Vec::new();
    for one in standings {
        let nearest = one.own.iter().chain(&one.rivals).map(|ranked| ranked.row as usize);
        cases.extend(nearest.filter(|row| effects.contains_key(row)).map(|row| (row, one.row)));
    }
    let probe = |at: usize| {
        let (removed, row) = cases[at];
        let exclude = Exclusions { rows: vec![removed as u32, row as u32], ..Exclusions::default() };
        row_as_probe(snapshot, row, exclude)
    };
    let recognitions = asking.recognize(cases.len(), probe, 2, on_done).await?;
    for (&(removed, row), recognition) in cases.iter().zip(recognitions) {
        let one = &standings[row];
        let others = snapshot.rows_of(one.identity).filter(|&other| other != row && other != removed);
        let truth = (others.count() > 0).then_some(one.identity);
        let nearest = recognition.candidates.first().map(|best| snapshot.identity_of(best.row as usize));
        let before = outcome(snapshot, one, |place| asking.cut(place));
        let after = Outcome::of(recognition.verdict.decision, nearest, truth);
        let effect = effects.entry(removed).or_default();
        match (before.is_right(), after.is_right()) {
            (false, true) => effect.mended += 1,
            (true, false) => effect.broken += 1,
            (true, true) | (false, false) => (),
        }
    }
    Ok(effects)
}
