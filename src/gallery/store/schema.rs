//! The tables, and the numbers that say whose database it is and how it is laid out.
//!
//! A prototype's primary key packs its gallery's number and its index ([`key`]): the table then lies in the order in which galleries are
//! read, without a second index over it.

use std::ops::RangeInclusive;

use super::removed::Counters;

/// `PRAGMA application_id` of a Lookalike database: `LkAl` in ASCII.
pub(super) const APPLICATION_ID: i64 = 0x4c6b_416c;

/// The format of the database (`PRAGMA user_version`). It rises whenever [`TABLES`] changes, independently of the program's version.
pub const FORMAT: i64 = 1;

/// Bytes of a database page: a few embeddings of usual length fit in one.
pub(super) const PAGE_BYTES: i64 = 8192;

/// Bits of a key that hold the index.
const INDEX_BITS: u32 = 40;

/// One past the greatest index.
pub(super) const INDEX_END: u64 = 1 << INDEX_BITS;

/// One past the greatest number of a gallery.
pub(super) const NUMBER_END: i64 = 1 << (63 - INDEX_BITS);

/// One past the greatest generation: beyond what any gallery reaches, below what a column holds.
const GENERATION_END: i64 = 1 << 62;

/// A gallery's counters as the columns have them, or what is wrong with them.
pub(super) fn counters(generation: i64, next_index: i64) -> Result<Counters, String> {
    if !(1..GENERATION_END).contains(&generation) {
        return Err(format!("expected a generation from 1 to {}, got {generation}", GENERATION_END - 1));
    }
    if !(0..=INDEX_END.cast_signed()).contains(&next_index) {
        return Err(format!("expected a next index from 0 to {INDEX_END}, got {next_index}"));
    }
    Ok(Counters { generation: generation.cast_unsigned(), next_index: next_index.cast_unsigned() })
}

/// The key of a prototype.
pub(super) fn key(gallery: i64, index: u64) -> i64 {
    debug_assert!((0..NUMBER_END).contains(&gallery) && index < INDEX_END);
    gallery << INDEX_BITS | index.cast_signed()
}

/// The keys of all prototypes of a gallery.
pub(super) fn keys(gallery: i64) -> RangeInclusive<i64> {
    key(gallery, 0)..=key(gallery, INDEX_END - 1)
}

/// The index in a key.
pub(super) fn index_of(key: i64) -> u64 {
    key.cast_unsigned() & (INDEX_END - 1)
}

/// The gallery's number in a key.
pub(super) fn gallery_of(key: i64) -> i64 {
    key >> INDEX_BITS
}

/// Format 1.
pub(super) const TABLES: &str = "
CREATE TABLE galleries (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    dim           INTEGER NOT NULL CHECK (dim BETWEEN 1 AND 4096),
    model_id      TEXT    NOT NULL,
    require_unit  INTEGER NOT NULL CHECK (require_unit IN (0, 1)),
    threshold     REAL,
    min_margin    REAL,
    generation    INTEGER NOT NULL CHECK (generation >= 1),
    next_index    INTEGER NOT NULL CHECK (next_index >= 0),
    created_ms    INTEGER NOT NULL
) STRICT;

-- How far galleries had counted when they were removed. The row without a name stands for those that are not kept singly.
CREATE TABLE removed_galleries (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    generation    INTEGER NOT NULL CHECK (generation >= 1),
    next_index    INTEGER NOT NULL CHECK (next_index >= 0)
) STRICT;

CREATE TABLE identities (
    id            INTEGER PRIMARY KEY,
    gallery       INTEGER NOT NULL REFERENCES galleries (id),
    name          TEXT    NOT NULL,
    threshold     REAL,
    min_margin    REAL,
    UNIQUE (gallery, name)
) STRICT;

CREATE TABLE prototypes (
    -- The gallery's id times 2^40, plus the prototype's index.
    key           INTEGER PRIMARY KEY,
    identity      INTEGER NOT NULL REFERENCES identities (id),
    prototype_id  TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    origin        TEXT    NOT NULL,
    created_ms    INTEGER NOT NULL,
    -- CRC-32 over the identity's name, prototype_id and source, each behind its length (u32, little-endian), and the embedding.
    checksum      INTEGER NOT NULL,
    -- dim float32, little-endian.
    embedding     BLOB    NOT NULL,
    UNIQUE (identity, prototype_id)
) STRICT;
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_went_in() {
        for (gallery, index) in [(1, 0), (7, 350_000), (NUMBER_END - 1, INDEX_END - 1)] {
            let key = key(gallery, index);
            assert!(key > 0);
            assert_eq!((gallery_of(key), index_of(key)), (gallery, index));
            assert!(keys(gallery).contains(&key) && !keys(gallery - 1).contains(&key));
        }
    }
}
