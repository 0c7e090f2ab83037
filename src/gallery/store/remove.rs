//! Taking prototypes out, and off the disk.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, named_params};

use super::import::set_counters;
use super::{GalleryKey, Store, StoreError, removed, require_gallery, schema};

/// What to remove from a gallery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These identities with all their prototypes.
    Identities(Vec<String>),
    /// These prototypes, each as `identity/prototype-id`.
    Prototypes(Vec<String>),
    /// All prototypes that came from these sources.
    Sources(Vec<String>),
    /// The whole gallery. Its name and how far it had counted are kept, so that one made again under that name goes on from there.
    Everything,
}

/// What a removal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveReport {
    /// Prototypes removed.
    pub prototypes: u64,
    /// Identities removed: those that were named, and those that have no prototype left.
    pub identities: u64,
    /// The gallery's generation now; `None` where the gallery is gone.
    pub generation: Option<u64>,
    /// Whether the disk is rid of them.
    pub erasure: Erasure,
}

/// Whether what was removed is gone from the files too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// No file of the data folder holds it any more.
    Complete,
    /// Another process was reading or writing: the write-ahead log still holds it, until that is written back by a later change, or when the
    /// last process closes the folder.
    Pending,
}

impl Store {
    /// Removes a selection from a gallery as one change. Anything in it that does not exist is an error, and nothing is removed.
    pub fn remove(&mut self, gallery: &str, selection: &Selection) -> Result<RemoveReport, StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let key = require_gallery(&transaction, gallery)?;
        let identities = count_identities(&transaction, key)?;
        let finder = Finder { db: &transaction, gallery, key };
        let selected = match selection {
            Selection::Everything => None,
            Selection::Identities(names) => Some(finder.all("identity", names, Finder::by_identity)?),
            Selection::Prototypes(names) => Some(finder.all("prototype", names, Finder::by_reference)?),
            Selection::Sources(names) => Some(finder.all("source", names, Finder::by_source)?),
        };
        let (prototypes, generation) = match selected {
            None => {
                removed::keep(&transaction, gallery, key)?;
                (remove_gallery(&transaction, key)?, None)
            }
            Some(selected) => {
                remove_prototypes(&transaction, key, &selected)?;
                let generation = key.generation + 1;
                set_counters(&transaction, GalleryKey { generation, ..key })?;
                (selected.len() as u64, Some(generation))
            }
        };
        let identities = identities - count_identities(&transaction, key)?;
        transaction.commit()?;
        let erasure = erase(&self.db)?;
        Ok(RemoveReport { prototypes, identities, generation, erasure })
    }
}

/// Finds the prototypes of a selection.
#[derive(Clone, Copy)]
struct Finder<'a> {
    db: &'a Connection,
    gallery: &'a str,
    key: GalleryKey,
}

impl Finder<'_> {
    /// The keys of all prototypes that `find` finds for `names`; each name must find one.
    fn all(
        self,
        what: &'static str,
        names: &[String],
        find: impl Fn(Self, &str) -> Result<Vec<i64>, StoreError>,
    ) -> Result<BTreeSet<i64>, StoreError> {
        let mut selected = BTreeSet::new();
        for name in names {
            let keys = find(self, name)?;
            if keys.is_empty() {
                let (gallery, name) = (self.gallery.to_owned(), name.clone());
                return Err(StoreError::NothingSelected { gallery, what, name });
            }
            selected.extend(keys);
        }
        Ok(selected)
    }

    fn by_identity(self, name: &str) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.db.prepare_cached(
            "SELECT p.key FROM prototypes p JOIN identities i ON i.id = p.identity
             WHERE i.gallery = :gallery AND i.name = :name",
        )?;
        let params = named_params! { ":gallery": self.key.number, ":name": name };
        let keys = statement.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(keys)
    }

    fn by_source(self, name: &str) -> Result<Vec<i64>, StoreError> {
        let range = schema::keys(self.key.number);
        let mut statement = self.db.prepare_cached(
            "SELECT key FROM prototypes WHERE key BETWEEN :first AND :last AND source = :source",
        )?;
        let params = named_params! { ":first": range.start(), ":last": range.end(), ":source": name };
        let keys = statement.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(keys)
    }

    /// Names may hold slashes themselves, so every place to part them is tried; that more than one fits is an error, since what is
    /// removed does not come back.
    fn by_reference(self, reference: &str) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.db.prepare_cached(
            "SELECT p.key FROM prototypes p JOIN identities i ON i.id = p.identity
             WHERE i.gallery = :gallery AND i.name = :name AND p.prototype_id = :prototype_id",
        )?;
        let mut keys = Vec::new();
        for (slash, _) in reference.match_indices('/') {
            let params = named_params! {
                ":gallery": self.key.number,
                ":name": &reference[..slash],
                ":prototype_id": &reference[slash + 1..],
            };
            keys.extend(statement.query_row(params, |row| row.get::<_, i64>(0)).optional()?);
        }
        match keys.len() {
            0 | 1 => Ok(keys),
            count => Err(StoreError::Ambiguous {
                gallery: self.gallery.to_owned(),
                name: reference.to_owned(),
                count,
            }),
        }
    }
}

/// How many identities a gallery holds.
pub(super) fn count_identities(db: &Connection, key: GalleryKey) -> Result<u64, StoreError> {
    let mut count = db.prepare_cached("SELECT count(*) FROM identities WHERE gallery = :gallery")?;
    let count: i64 = count.query_row(named_params! { ":gallery": key.number }, |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// Removes prototypes, and the identities that have none left.
fn remove_prototypes(db: &Connection, key: GalleryKey, selected: &BTreeSet<i64>) -> Result<(), StoreError> {
    let mut delete = db.prepare_cached("DELETE FROM prototypes WHERE key = :key")?;
    for key in selected {
        delete.execute(named_params! { ":key": key })?;
    }
    db.execute(
        "DELETE FROM identities WHERE gallery = :gallery
         AND NOT EXISTS (SELECT 1 FROM prototypes p WHERE p.identity = identities.id)",
        named_params! { ":gallery": key.number },
    )?;
    Ok(())
}

/// Removes a gallery with all it holds; gives the number of its prototypes.
fn remove_gallery(db: &Connection, key: GalleryKey) -> Result<u64, StoreError> {
    let range = schema::keys(key.number);
    let prototypes = db.execute(
        "DELETE FROM prototypes WHERE key BETWEEN :first AND :last",
        named_params! { ":first": range.start(), ":last": range.end() },
    )?;
    let number = named_params! { ":gallery": key.number };
    db.execute("DELETE FROM identities WHERE gallery = :gallery", number)?;
    db.execute("DELETE FROM galleries WHERE id = :gallery", number)?;
    Ok(prototypes as u64)
}

/// Writes the log back into the database, where what was removed is overwritten with zeros, and empties it.
fn erase(db: &Connection) -> Result<Erasure, StoreError> {
    let busy: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(if busy { Erasure::Pending } else { Erasure::Complete })
}
