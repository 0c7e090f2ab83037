//! Writes the prototypes of one import, one by one, into a transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, named_params};

use super::{GalleryKey, RecordProblem, StoreError, now_ms, row, schema};
use crate::domain::{Embedding, Margin, Prototype, PrototypeKey, Threshold, check_name};
use crate::gallery::{GalleryProfile, Identity, OnProgress, Place, Progress, PrototypeRecord, Stage};

/// Prototypes between two reports of progress.
const REPORT_ROWS: usize = 4096;

/// Writes prototypes one by one.
pub(super) struct Writer<'a> {
    db: &'a Connection,
    gallery: GalleryKey,
    profile: &'a GalleryProfile,
    insert: CachedStatement<'a>,
    identities: HashMap<String, i64>,
    /// Thresholds and margins of identities, should they be made.
    limits: HashMap<&'a str, &'a Identity>,
    /// Where the records written so far stood, in their order.
    places: Vec<Place>,
    /// As the file had them, before normalising.
    raw: Vec<f32>,
    bytes: Vec<u8>,
    created_ms: i64,
    written: Written,
}

/// What a [`Writer`] counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Written {
    /// New identities.
    pub(super) identities: u64,
    /// Prototypes that were not of unit length.
    pub(super) normalised: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        db: &'a Transaction<'_>,
        gallery: GalleryKey,
        profile: &'a GalleryProfile,
        limits: &'a [Identity],
    ) -> Result<Self, StoreError> {
        let insert = db.prepare_cached(
            "INSERT INTO prototypes
                (key, identity, prototype_id, source, origin, created_ms, checksum, embedding)
             VALUES (:key, :identity, :prototype_id, :source, :origin, :created_ms, :checksum, :embedding)
             ON CONFLICT (identity, prototype_id) DO NOTHING",
        )?;
        Ok(Self {
            db,
            gallery,
            profile,
            insert,
            identities: HashMap::new(),
            limits: limits.iter().map(|one| (one.name.as_str(), one)).collect(),
            places: Vec::new(),
            raw: Vec::new(),
            bytes: Vec::new(),
            created_ms: now_ms(),
            written: Written::default(),
        })
    }

    /// Adds all records, and says what it counted.
    pub(super) fn add_all(
        mut self,
        records: Vec<PrototypeRecord>,
        on_progress: OnProgress<'_>,
    ) -> Result<Written, StoreError> {
        let total = records.len() as u64;
        self.places.reserve(records.len());
        for (done, record) in records.into_iter().enumerate() {
            if done % REPORT_ROWS == 0 {
                on_progress(Progress { stage: Stage::Storing, done: done as u64, total });
            }
            self.add(record)?;
        }
        on_progress(Progress { stage: Stage::Storing, done: total, total });
        Ok(self.written)
    }

    fn add(&mut self, record: PrototypeRecord) -> Result<(), StoreError> {
        let place = record.place.clone();
        let prototype = self.check(record).map_err(|problem| problem.at(place.clone()))?;
        let identity = self.identity(&prototype.key.identity)?;
        row::encode(&prototype.embedding, &mut self.bytes);
        let key = &prototype.key;
        let checksum = row::checksum(&key.identity, &key.id, &prototype.source, &self.bytes);
        let index = self.gallery.next_index + self.places.len() as u64;
        let added = self.insert.execute(named_params! {
            ":key": schema::key(self.gallery.number, index),
            ":identity": identity,
            ":prototype_id": key.id,
            ":source": prototype.source,
            ":origin": prototype.origin.as_str(),
            ":created_ms": prototype.created_ms,
            ":checksum": checksum,
            ":embedding": self.bytes,
        })?;
        if added == 0 {
            return Err(self.duplicate(prototype.key, identity)?.at(place));
        }
        self.places.push(place);
        Ok(())
    }

    fn check(&mut self, record: PrototypeRecord) -> Result<Prototype, RecordProblem> {
        let names = [("identity", &record.identity), ("id", &record.id), ("source", &record.source)];
        for (field, name) in names {
            if field != "source" || !name.is_empty() {
                check_name(name).map_err(|problem| RecordProblem::Name { field, problem })?;
            }
        }
        self.raw.clear();
        self.raw.extend_from_slice(&record.embedding);
        let embedding = Embedding::parse(record.embedding, self.profile.dim, self.profile.norm)?;
        let same =
            embedding.as_slice().iter().zip(&self.raw).all(|(now, was)| now.to_bits() == was.to_bits());
        self.written.normalised += u64::from(!same);
        Ok(Prototype {
            key: PrototypeKey { identity: record.identity, id: record.id },
            source: record.source,
            origin: record.origin,
            created_ms: self.created_ms,
            embedding,
        })
    }

    /// The number of an identity, which is made where it is not there.
    fn identity(&mut self, name: &str) -> Result<i64, StoreError> {
        let entry = match self.identities.entry(name.to_owned()) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(entry) => entry,
        };
        let mut find =
            self.db.prepare_cached("SELECT id FROM identities WHERE gallery = :gallery AND name = :name")?;
        let params = named_params! { ":gallery": self.gallery.number, ":name": name };
        let found: Option<i64> = find.query_row(params, |row| row.get(0)).optional()?;
        if let Some(number) = found {
            return Ok(*entry.insert(number));
        }
        let mut insert = self.db.prepare_cached(
            "INSERT INTO identities (gallery, name, threshold, min_margin)
             VALUES (:gallery, :name, :threshold, :min_margin)",
        )?;
        let limits = self.limits.get(name);
        self.written.identities += 1;
        Ok(*entry.insert(insert.insert(named_params! {
            ":gallery": self.gallery.number,
            ":name": name,
            ":threshold": limits.and_then(|one| one.threshold).map(Threshold::get),
            ":min_margin": limits.and_then(|one| one.min_margin).map(Margin::get),
        })?))
    }

    /// Says which prototype has the name already.
    fn duplicate(&self, key: PrototypeKey, identity: i64) -> Result<RecordProblem, StoreError> {
        let mut find = self.db.prepare(
            "SELECT key FROM prototypes WHERE identity = :identity AND prototype_id = :prototype_id",
        )?;
        let params = named_params! { ":identity": identity, ":prototype_id": key.id };
        let index = schema::index_of(find.query_row(params, |row| row.get(0))?);
        let PrototypeKey { identity, id } = key;
        Ok(match index.checked_sub(self.gallery.next_index) {
            None => RecordProblem::InGallery { identity, id, index },
            Some(earlier) => {
                RecordProblem::TwiceInImport { identity, id, first: self.places[earlier as usize].clone() }
            }
        })
    }
}
