//! Listing what there is, without loading embeddings.

use rusqlite::{Connection, named_params};

use super::read::count_prototypes;
use super::read::{identity, names, profile_and_time};
use super::remove::count_identities;
use super::{Store, StoreError, require_gallery, schema};
use crate::domain::{Origin, PrototypeKey};
use crate::gallery::{GalleryProfile, Identity};

/// What a gallery is and how much it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct GallerySummary {
    /// What it is.
    pub profile: GalleryProfile,
    /// How many prototypes.
    pub prototypes: u64,
    /// How many identities.
    pub identities: u64,
    /// When it was made, in milliseconds since 1970 (UTC).
    pub created_ms: i64,
}

/// An identity and how much it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentitySummary {
    /// The person.
    pub identity: Identity,
    /// How many prototypes.
    pub prototypes: u64,
}

/// Which prototypes to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrototypeQuery<'a> {
    /// Of this gallery.
    pub gallery: &'a str,
    /// Of this identity alone.
    pub identity: Option<&'a str>,
    /// With an index greater than this.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// A prototype without its embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrototypeSummary {
    /// Its place in the order of insertion.
    pub index: u64,
    /// Its name.
    pub key: PrototypeKey,
    /// Where it came from; may be empty.
    pub source: String,
    /// How it was chosen.
    pub origin: Origin,
    /// When it was added, in milliseconds since 1970 (UTC).
    pub created_ms: i64,
}

impl Store {
    /// All galleries, by name.
    pub fn galleries(&self) -> Result<Vec<GallerySummary>, StoreError> {
        let transaction = self.reading()?;
        names(&transaction)?.iter().map(|name| summary(&transaction, name)).collect()
    }

    /// One gallery.
    pub fn gallery(&self, name: &str) -> Result<GallerySummary, StoreError> {
        let transaction = self.reading()?;
        summary(&transaction, name)
    }

    /// The identities of a gallery, by name.
    pub fn identities(&self, gallery: &str) -> Result<Vec<IdentitySummary>, StoreError> {
        let transaction = self.reading()?;
        let key = require_gallery(&transaction, gallery)?;
        let mut statement = transaction.prepare(
            "SELECT i.name, i.threshold, i.min_margin,
                    (SELECT count(*) FROM prototypes p WHERE p.identity = i.id)
             FROM identities i WHERE i.gallery = :gallery ORDER BY i.name",
        )?;
        let mut rows = statement.query(named_params! { ":gallery": key.number })?;
        let mut identities = Vec::new();
        while let Some(row) = rows.next()? {
            let count: i64 = row.get(3)?;
            let identity = identity(row, 0, gallery)?;
            identities.push(IdentitySummary { identity, prototypes: count.cast_unsigned() });
        }
        Ok(identities)
    }

    /// Prototypes of a gallery by index, without their embeddings.
    pub fn prototypes(&self, query: &PrototypeQuery<'_>) -> Result<Vec<PrototypeSummary>, StoreError> {
        let transaction = self.reading()?;
        let keys = schema::keys(require_gallery(&transaction, query.gallery)?.number);
        let after = query.after.map_or(0, |after| after.saturating_add(1).min(schema::INDEX_END));
        let mut statement = transaction.prepare(
            "SELECT p.key, i.name, p.prototype_id, p.source, p.origin, p.created_ms
             FROM prototypes p JOIN identities i ON i.id = p.identity
             WHERE p.key BETWEEN :first AND :last AND (:identity IS NULL OR i.name = :identity)
             ORDER BY p.key LIMIT :limit",
        )?;
        let mut rows = statement.query(named_params! {
            ":first": keys.start() + after.cast_signed(),
            ":last": keys.end(),
            ":identity": query.identity,
            ":limit": i64::try_from(query.limit).unwrap_or(i64::MAX),
        })?;
        let mut prototypes = Vec::new();
        while let Some(row) = rows.next()? {
            let (index, name): (_, String) = (schema::index_of(row.get(0)?), row.get(1)?);
            let origin: String = row.get(4)?;
            let origin = origin.parse().map_err(|problem| StoreError::Corrupt {
                gallery: query.gallery.to_owned(),
                index,
                identity: name.clone(),
                problem: format!("origin: {problem}"),
            })?;
            let key = PrototypeKey { identity: name, id: row.get(2)? };
            prototypes.push(PrototypeSummary {
                index,
                key,
                source: row.get(3)?,
                origin,
                created_ms: row.get(5)?,
            });
        }
        Ok(prototypes)
    }
}

fn summary(db: &Connection, name: &str) -> Result<GallerySummary, StoreError> {
    let key = require_gallery(db, name)?;
    let (profile, created_ms) = profile_and_time(db, name)?;
    let prototypes = count_prototypes(db, key.number)?;
    Ok(GallerySummary { profile, prototypes, identities: count_identities(db, key)?, created_ms })
}
