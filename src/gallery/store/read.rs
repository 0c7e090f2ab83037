//! Reading a gallery's generation whole, every row checked.

use rusqlite::{Connection, Row, Transaction, named_params};

use super::names::IdentityNames;
use super::row::{self, Checked, RowError};
use super::{GalleryKey, Store, StoreError, require_gallery, schema};
use crate::domain::{Margin, NormPolicy, OutOfRange, Prototype, Threshold};
use crate::gallery::{GalleryProfile, Identity, NewRow, Snapshot, SnapshotBuilder};

impl Store {
    /// A gallery's current generation, ready for scanning. Every row is checked.
    pub fn snapshot(&self, gallery: &str) -> Result<Snapshot, StoreError> {
        let transaction = self.reading()?;
        Ok(snapshot(&transaction, gallery)?.read_from(self.id))
    }

    /// The current generations of all galleries, by name, as they were at one moment.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, StoreError> {
        let transaction = self.reading()?;
        let one = |name: &String| Ok(snapshot(&transaction, name)?.read_from(self.id));
        names(&transaction)?.iter().map(one).collect()
    }

    /// A gallery and its prototypes with their indices, in the order of these. Every row is checked.
    pub fn export(&self, gallery: &str) -> Result<(GalleryProfile, Vec<(u64, Prototype)>), StoreError> {
        let transaction = self.reading()?;
        let key = require_gallery(&transaction, gallery)?;
        let profile = profile(&transaction, gallery)?;
        let (_, names) = load_identities(&transaction, key, gallery)?;
        let mut prototypes = Vec::with_capacity(count_prototypes(&transaction, key.number)? as usize);
        each_sound_prototype(&transaction, key, &profile, &names, |prototype| {
            prototypes.push((prototype.index, prototype.to_prototype()));
        })?;
        Ok((profile, prototypes))
    }

    /// A transaction: all that is read in it is of one moment.
    pub(super) fn reading(&self) -> Result<Transaction<'_>, StoreError> {
        Ok(self.db.unchecked_transaction()?)
    }
}

/// The names of all galleries in their order.
pub(super) fn names(db: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = db.prepare_cached("SELECT name FROM galleries ORDER BY name")?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

/// How many prototypes a gallery holds.
pub(super) fn count_prototypes(db: &Connection, gallery: i64) -> Result<u64, StoreError> {
    let keys = schema::keys(gallery);
    let mut count =
        db.prepare_cached("SELECT count(*) FROM prototypes WHERE key BETWEEN :first AND :last")?;
    let count: i64 =
        count.query_row(named_params! { ":first": keys.start(), ":last": keys.end() }, |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// What a gallery is.
pub(super) fn profile(db: &Connection, name: &str) -> Result<GalleryProfile, StoreError> {
    Ok(profile_and_time(db, name)?.0)
}

pub(super) fn profile_and_time(db: &Connection, name: &str) -> Result<(GalleryProfile, i64), StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT dim, model_id, require_unit, threshold, min_margin, generation, created_ms
         FROM galleries WHERE name = :name",
    )?;
    let mut rows = statement.query(named_params! { ":name": name })?;
    let Some(row) = rows.next()? else {
        return Err(StoreError::UnknownGallery(name.to_owned()));
    };
    let (dim, generation): (u16, i64) = (row.get(0)?, row.get(5)?);
    let (threshold, min_margin) = limits(row, 3, name)?;
    let norm = if row.get(2)? { NormPolicy::RequireUnit } else { NormPolicy::Normalise };
    let profile = GalleryProfile {
        name: name.to_owned(),
        dim: dim.into(),
        model_id: row.get(1)?,
        norm,
        threshold,
        min_margin,
        generation: generation.cast_unsigned(),
    };
    Ok((profile, row.get(6)?))
}

/// A threshold and a margin, in columns `first` and the next.
fn limits(
    row: &Row<'_>,
    first: usize,
    gallery: &str,
) -> Result<(Option<Threshold>, Option<Margin>), StoreError> {
    let corrupt = |problem: OutOfRange| StoreError::CorruptGallery {
        gallery: gallery.to_owned(),
        problem: problem.to_string(),
    };
    let (threshold, margin): (Option<f32>, Option<f32>) = (row.get(first)?, row.get(first + 1)?);
    let threshold = threshold.map(Threshold::parse).transpose().map_err(corrupt)?;
    let margin = margin.map(Margin::parse).transpose().map_err(corrupt)?;
    Ok((threshold, margin))
}

/// An identity: name, threshold and margin, in columns `first` and the next two.
pub(super) fn identity(row: &Row<'_>, first: usize, gallery: &str) -> Result<Identity, StoreError> {
    let (threshold, min_margin) = limits(row, first + 1, gallery)?;
    Ok(Identity { name: row.get(first)?, threshold, min_margin })
}

/// The names of a gallery's identities, and those of them that have a threshold or a margin of their own.
pub(super) fn load_identities(
    db: &Connection,
    key: GalleryKey,
    gallery: &str,
) -> Result<(Vec<Identity>, IdentityNames), StoreError> {
    let mut statement =
        db.prepare_cached("SELECT id, name, threshold, min_margin FROM identities WHERE gallery = :gallery")?;
    let mut rows = statement.query(named_params! { ":gallery": key.number })?;
    let (mut with_limits, mut names) = (Vec::new(), IdentityNames::default());
    while let Some(row) = rows.next()? {
        let (threshold, min_margin) = limits(row, 2, gallery)?;
        let name = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        names.add(row.get(0)?, name);
        if threshold.is_some() || min_margin.is_some() {
            with_limits.push(Identity { name: name.to_owned(), threshold, min_margin });
        }
    }
    Ok((with_limits, names.sorted()))
}

/// Calls `each` with every prototype of a gallery by index, or with what is wrong with it.
pub(super) fn each_prototype(
    db: &Connection,
    key: GalleryKey,
    dim: usize,
    names: &IdentityNames,
    mut each: impl FnMut(Result<&Checked<'_>, row::Damage>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let keys = schema::keys(key.number);
    let sql = format!(
        "SELECT {} FROM prototypes p WHERE p.key BETWEEN :first AND :last ORDER BY p.key",
        row::COLUMNS
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":first": keys.start(), ":last": keys.end() })?;
    // One embedding's memory, handed from row to row.
    let mut values = Vec::with_capacity(dim);
    while let Some(row) = rows.next()? {
        match row::read(row, dim, names, &mut values) {
            Ok(prototype) => {
                each(Ok(&prototype))?;
                values = prototype.embedding.into_values();
            }
            Err(RowError::Damage(damage)) => each(Err(damage))?,
            Err(RowError::Sqlite(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Calls `each` with every prototype of a gallery by index; one that is not as it was written is an error.
fn each_sound_prototype(
    db: &Connection,
    key: GalleryKey,
    profile: &GalleryProfile,
    names: &IdentityNames,
    mut each: impl FnMut(&Checked<'_>),
) -> Result<(), StoreError> {
    each_prototype(db, key, profile.dim, names, |prototype| {
        let corrupt = |damage: row::Damage| StoreError::Corrupt {
            gallery: profile.name.clone(),
            index: damage.index,
            identity: damage.identity,
            problem: damage.problem,
        };
        each(prototype.map_err(corrupt)?);
        Ok(())
    })
}

fn snapshot(db: &Connection, gallery: &str) -> Result<Snapshot, StoreError> {
    let key = require_gallery(db, gallery)?;
    let profile = profile(db, gallery)?;
    let (identities, names) = load_identities(db, key, gallery)?;
    let count = count_prototypes(db, key.number)? as usize;
    let mut builder = SnapshotBuilder::new(profile.clone(), identities, count);
    each_sound_prototype(db, key, &profile, &names, |prototype| {
        builder.push(NewRow {
            index: prototype.index,
            identity: prototype.identity,
            prototype_id: prototype.id,
            source: prototype.source,
            origin: prototype.origin,
            embedding: &prototype.embedding,
        });
    })?;
    Ok(builder.finish())
}
