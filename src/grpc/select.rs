//! `SelectPrototypes`: from the message to a question about one identity, and from what was chosen to the reply.

use std::sync::Arc;

use tonic::Status;

use super::proto;
use super::request::parse_cut;
use super::status::{self, Violations};
use crate::config::Limits;
use crate::domain::{Margin, Threshold};
use crate::gallery::Snapshot;
use crate::quality::ask::Asking;
use crate::quality::select::{Choice, Plan, Selection, select_one};
use crate::quality::standing::standings_of;
use crate::quality::validate::Outcome;
use crate::recognize::Recognizer;

/// Prototypes and medoids where the request does not say how many, and most of either.
const PROTOTYPES: u32 = 5;
const MEDOIDS: u32 = 3;
const MOST: u32 = 256;

/// A question about one identity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    place: usize,
    plan: Plan,
    threshold: Option<Threshold>,
    min_margin: Option<Margin>,
}

impl Asked {
    pub(super) fn parse(
        message: &proto::SelectPrototypesRequest,
        snapshot: &Snapshot,
        limits: &Limits,
    ) -> Result<Self, Status> {
        let mut violations = Violations::default();
        let (threshold, min_margin) = parse_cut((message.threshold, message.min_margin), &mut violations);
        let prototypes = if message.max_prototypes == 0 { PROTOTYPES } else { message.max_prototypes };
        let medoids = message.max_medoids.unwrap_or(MEDOIDS);
        for (field, count) in [("max_prototypes", prototypes), ("max_medoids", medoids)] {
            if count > MOST {
                violations.push(field, format!("expected at most {MOST}, got {count}"));
            }
        }
        if message.identity.is_empty() {
            violations.push("identity", "expected a name, got nothing");
        }
        let place = snapshot.place_of(&message.identity);
        let rows = place.map_or(0, |place| snapshot.rows_of(place).len());
        if rows > limits.max_probes {
            let text = format!("expected one of at most {} prototypes, got one of {rows}", limits.max_probes);
            violations.push("identity", text);
        }
        if !violations.is_empty() {
            return Err(violations.into());
        }
        let place = place.ok_or_else(status::unknown_identity)?;
        let plan = Plan { prototypes: prototypes as usize, medoids: medoids as usize };
        Ok(Self { place, plan, threshold, min_margin })
    }

    /// Scans and chooses. Not for a runtime thread.
    pub(super) async fn answer(
        self,
        recognizer: &Recognizer,
        snapshot: &Arc<Snapshot>,
    ) -> Result<proto::SelectPrototypesResponse, Status> {
        let Self { place, plan, threshold, min_margin } = self;
        let asking = Asking { recognizer, snapshot, threshold, min_margin, unique_in_group: false };
        let rows: Vec<usize> = snapshot.rows_of(place).collect();
        let standings = standings_of(&asking, &rows, &mut |_, _| ()).await?;
        let selection = select_one(snapshot, &standings, |place| asking.cut(place), plan);
        selection.map(|selection| reply(snapshot, &selection)).ok_or_else(status::unknown_identity)
    }
}

fn reply(snapshot: &Snapshot, selection: &Selection) -> proto::SelectPrototypesResponse {
    let selected = |choice: &Choice| {
        let row = snapshot.row(choice.row);
        proto::SelectedPrototype {
            prototype_id: row.prototype_id.read(),
            index: row.index,
            source: row.source.read(),
            reason: choice.origin.as_str().to_owned(),
            gain: choice.gain as u32,
            nearest_to: choice.nearest_to as u32,
        }
    };
    let count = |outcome| selection.count(outcome) as u32;
    proto::SelectPrototypesResponse {
        selected: selection.choices.iter().map(selected).collect(),
        prototypes: selection.embeddings as u32,
        recognized: count(Outcome::Recognized),
        below_threshold: count(Outcome::BelowThreshold),
        ambiguous: count(Outcome::Ambiguous),
        wrong_identity: count(Outcome::WrongIdentity),
        coverage: selection.coverage(),
        generation: snapshot.profile().generation,
    }
}
