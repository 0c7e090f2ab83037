//! What is kept of removed galleries: their names and how far they had counted, so that one made again under the same name goes on
//! from there. Otherwise an answer of the old gallery could pass for one of the new: the same name, generation and index.
//!
//! At most [`MAX_REMOVED`] are kept by name. Beyond that the oldest are folded into one row without a name, which holds the greatest of their
//! counters; a gallery whose name is not kept goes on from that, so that the promise holds for the folded ones too.

use rusqlite::{Connection, OptionalExtension, named_params};

use super::{GalleryKey, StoreError, schema};

/// Most removed galleries that are kept by name.
pub(super) const MAX_REMOVED: i64 = 1000;

/// How far a gallery has counted: the generation it has reached and the index it gives next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) generation: u64,
    pub(super) next_index: u64,
}

/// Keeps the counters of a gallery that is being removed.
pub(super) fn keep(db: &Connection, name: &str, key: GalleryKey) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO removed_galleries (name, generation, next_index)
         VALUES (:name, :generation, :next_index)",
    )?
    .execute(named_params! {
        ":name": name,
        ":generation": key.generation.cast_signed(),
        ":next_index": key.next_index.cast_signed(),
    })?;
    let count = "SELECT count(*) FROM removed_galleries WHERE name <> ''";
    let count: i64 = db.prepare_cached(count)?.query_row([], |row| row.get(0))?;
    if count > MAX_REMOVED {
        fold_oldest(db)?;
    }
    Ok(())
}

fn fold_oldest(db: &Connection) -> Result<(), StoreError> {
    let oldest = "SELECT min(id) FROM removed_galleries WHERE name <> ''";
    let oldest: i64 = db.prepare_cached(oldest)?.query_row([], |row| row.get(0))?;
    let oldest = named_params! { ":oldest": oldest };
    db.prepare_cached(
        "INSERT INTO removed_galleries (name, generation, next_index)
         SELECT '', generation, next_index FROM removed_galleries WHERE id = :oldest
         ON CONFLICT (name) DO UPDATE SET
            generation = max(generation, excluded.generation),
            next_index = max(next_index, excluded.next_index)",
    )?
    .execute(oldest)?;
    db.prepare_cached("DELETE FROM removed_galleries WHERE id = :oldest")?.execute(oldest)?;
    Ok(())
}

/// Gives the counters that a new gallery of this name goes on from, and keeps them no longer.
pub(super) fn take_up(db: &Connection, name: &str) -> Result<Counters, StoreError> {
    let name_params = named_params! { ":name": name };
    // The row without a name comes last.
    let mut find = db.prepare_cached(
        "SELECT generation, next_index FROM removed_galleries WHERE name IN (:name, '') ORDER BY name DESC LIMIT 1",
    )?;
    let found = find.query_row(name_params, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((generation, next_index)) = found else { return Ok(Counters::default()) };
    let counters = schema::counters(generation, next_index).map_err(|problem| {
        let problem = format!("kept from when it was removed: {problem}");
        StoreError::CorruptGallery { gallery: name.to_owned(), problem }
    })?;
    db.prepare_cached("DELETE FROM removed_galleries WHERE name = :name")?.execute(name_params)?;
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(generation: u64, next_index: u64) -> GalleryKey {
        GalleryKey { number: 1, generation, next_index }
    }

    fn counters(generation: u64, next_index: u64) -> Counters {
        Counters { generation, next_index }
    }

    fn tables() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::TABLES).unwrap();
        db
    }

    #[test]
    fn counters_are_taken_up_once() {
        let db = tables();
        keep(&db, "g", key(7, 40)).unwrap();
        assert_eq!(take_up(&db, "h").unwrap(), counters(0, 0));
        assert_eq!(take_up(&db, "g").unwrap(), counters(7, 40));
        assert_eq!(take_up(&db, "g").unwrap(), counters(0, 0));
    }

    #[test]
    fn beyond_the_limit_the_oldest_are_folded_and_nothing_starts_below_them() {
        let db = tables();
        keep(&db, "first", key(90, 3)).unwrap();
        keep(&db, "second", key(4, 500)).unwrap();
        for other in 0..MAX_REMOVED {
            keep(&db, &format!("other {other}"), key(2, 2)).unwrap();
        }
        let rows: i64 = db.query_row("SELECT count(*) FROM removed_galleries", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, MAX_REMOVED + 1);
        for name in ["first", "second", "never seen"] {
            assert_eq!(take_up(&db, name).unwrap(), counters(90, 500), "{name}");
        }
        assert_eq!(take_up(&db, "other 0").unwrap(), counters(2, 2));
    }
}
