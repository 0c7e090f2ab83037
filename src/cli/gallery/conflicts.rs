//! What an import would do to the gallery: prototypes that look like somebody else, found before anything is written.

use std::collections::HashSet;
use std::path::Path;

use clap::ValueEnum;

use crate::cli::quality::Ready;
use crate::cli::settings::SettingsArgs;
use crate::domain::{Embedding, NormPolicy};
use crate::gallery::store::{ImportOptions, Store, StoreError};
use crate::gallery::{GalleryProfile, NewRow, PrototypeRecord, Snapshot, SnapshotBuilder};
use crate::quality::conflict::{Conflict, Likeness, conflict};
use crate::quality::standing::standings_of;
use crate::telemetry;

/// Most conflicts in an error.
const MOST_TOLD: usize = 5;

/// What happens when a new prototype is as near to another person as to its own, or nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnConflict {
    /// Nobody looks.
    Accept,
    /// It is told, and all are imported.
    Warn,
    /// It is told, and nothing is imported; exit code 3.
    Reject,
}

/// What was found, and in what.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) conflicts: Vec<Conflict>,
    /// The gallery's generation that was looked at; 0 where there is none yet.
    pub(super) generation: u64,
    /// Prototypes that it holds.
    pub(super) held: usize,
}

/// Conflicts of the records with each other and with what the gallery holds. Records that the store will refuse are not looked at.
pub(super) fn find(
    settings: &SettingsArgs,
    (folder, gallery): (&Path, &str),
    records: &[PrototypeRecord],
    options: &ImportOptions,
) -> anyhow::Result<Found> {
    let held = match Store::open_read_only(folder).and_then(|store| store.snapshot(gallery)) {
        Ok(snapshot) => Some(snapshot),
        Err(StoreError::UnknownGallery(_) | StoreError::NoFolder(_) | StoreError::NoDatabase(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let mut found = Found {
        conflicts: Vec::new(),
        generation: held.as_ref().map_or(0, |held| held.profile().generation),
        held: held.as_ref().map_or(0, Snapshot::row_count),
    };
    let Some((snapshot, first)) = joined(held.as_ref(), gallery, records, options) else {
        return Ok(found);
    };
    let loaded = settings.load([])?;
    telemetry::init(&loaded.log)?;
    let ready = Ready::new(&loaded, snapshot)?;
    let (snapshot, asking) = (&ready.snapshot, ready.asking((None, None)));
    let mut new: Vec<usize> = (0..snapshot.row_count()).filter(|&row| snapshot.index(row) >= first).collect();
    new.sort_by_key(|&row| snapshot.index(row));
    let standings = crate::cli::runtime()?.block_on(standings_of(&asking, &new, &mut |_, _| ()))?;
    let conflicts = standings.iter().filter_map(|one| conflict(snapshot, one, |place| asking.cut(place)));
    found.conflicts = conflicts.collect();
    Ok(found)
}

/// The gallery as it would be, and the first index of what is new; `None` where the store will refuse the records.
fn joined(
    held: Option<&Snapshot>,
    gallery: &str,
    records: &[PrototypeRecord],
    options: &ImportOptions,
) -> Option<(Snapshot, u64)> {
    let made = || GalleryProfile {
        norm: options.norm.unwrap_or_default(),
        threshold: options.threshold,
        min_margin: options.min_margin,
        ..GalleryProfile::named(gallery, records.first().map_or(1, |record| record.embedding.len().max(1)))
    };
    if is_repeated(held, records) {
        return None;
    }
    let profile = held.map_or_else(made, |held| held.profile().clone());
    let (dim, norm): (usize, NormPolicy) = (profile.dim, profile.norm);
    let parse = |values: &[f32], norm| Embedding::parse(values.to_vec(), dim, norm).ok();
    let held_rows = held.map_or(0, Snapshot::row_count);
    let identities = held.map_or_else(|| options.identities.clone(), Snapshot::own_limits);
    let mut builder = SnapshotBuilder::new(profile, identities, held_rows + records.len());
    let mut first = 0;
    if let Some(held) = held {
        let mut rows: Vec<usize> = (0..held_rows).collect();
        rows.sort_by_key(|&row| held.index(row));
        for row in rows {
            let view = held.row(row);
            let embedding = parse(held.matrix().row(row), NormPolicy::Normalise)?;
            first = view.index + 1;
            builder.push(NewRow {
                index: view.index,
                identity: &held.identity(view.identity).name.read(),
                prototype_id: &view.prototype_id.read(),
                source: &view.source.read(),
                origin: view.origin,
                embedding: &embedding,
            });
        }
    }
    for (record, index) in records.iter().zip(first..) {
        let embedding = parse(&record.embedding, norm)?;
        builder.push(NewRow {
            index,
            identity: &record.identity,
            prototype_id: &record.id,
            source: &record.source,
            origin: record.origin,
            embedding: &embedding,
        });
    }
    Some((builder.finish(), first))
}

/// Whether a prototype stands twice among the records, or is held already.
fn is_repeated(held: Option<&Snapshot>, records: &[PrototypeRecord]) -> bool {
    let mut seen = HashSet::with_capacity(records.len());
    let is_held = |record: &PrototypeRecord| {
        let held = held.and_then(|held| Some((held, held.place_of(&record.identity)?)));
        held.is_some_and(|(held, place)| held.prototype_in(place, &record.id).is_some())
    };
    records.iter().any(|record| !seen.insert((&record.identity, &record.id)) || is_held(record))
}

/// The first few conflicts, and how many there are besides.
pub(super) fn summary(conflicts: &[Conflict]) -> String {
    let mut told: Vec<String> = conflicts.iter().take(MOST_TOLD).map(sentence).collect();
    if conflicts.len() > MOST_TOLD {
        told.push(format!("and {} more (--format json lists them all)", conflicts.len() - MOST_TOLD));
    }
    told.join("; ")
}

/// A conflict in a sentence.
pub(super) fn sentence(conflict: &Conflict) -> String {
    let Conflict { identity, prototype_id, own, other, likeness } = conflict;
    let nearest = match (likeness, own) {
        (Likeness::Nearer, Some(own)) => {
            format!("nearer than the nearest of its own, {:.6} to {}", own.score, own.prototype_id)
        }
        (Likeness::AsNear, Some(own)) => {
            format!("exactly as near as the nearest of its own, {}", own.prototype_id)
        }
        (Likeness::TakenFor, _) | (_, None) => "the first of its person".to_owned(),
    };
    format!(
        "{identity}/{prototype_id} looks like {}: {:.6} to {}/{}, {nearest}",
        other.identity, other.score, other.identity, other.prototype_id
    )
}
