//! Checking a data folder from end to end, for whoever suspects a disk: everything that is wrong, not just the first thing.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use rusqlite::{Connection, named_params};

use super::{GalleryKey, Store, StoreError, read, removed, require_gallery, schema};
use crate::domain::check_name;

/// Most faults that a report lists; the rest is counted.
const MAX_FAULTS: usize = 1000;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Galleries checked.
    pub galleries: u64,
    /// Prototypes checked.
    pub prototypes: u64,
    /// What is wrong: the first 1000.
    pub faults: Vec<Fault>,
    /// How many faults there are beyond those.
    pub more_faults: u64,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// In which gallery, if in one.
    pub gallery: Option<String>,
    /// In which prototype, if in one.
    pub index: Option<u64>,
    /// Expected and got.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.gallery, self.index) {
            (None, _) => write!(f, "database: {}", self.problem),
            (Some(gallery), None) => write!(f, "gallery {gallery:?}: {}", self.problem),
            (Some(gallery), Some(index)) => {
                write!(f, "gallery {gallery:?}, prototype {index}: {}", self.problem)
            }
        }
    }
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    /// Adds a fault if `name`, the `what` of something, is not a name.
    fn check_name(&mut self, gallery: &str, index: Option<u64>, what: &str, name: &str) {
        if let Err(problem) = check_name(name) {
            self.add(Some(gallery), index, format!("{what} {name:?}: {problem}"));
        }
    }

    fn add(&mut self, gallery: Option<&str>, index: Option<u64>, problem: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault { gallery: gallery.map(str::to_owned), index, problem });
        } else {
            self.more_faults += 1;
        }
    }
}

/// Checks the data folder `folder`: the database's structure, that every row belongs to something, every prototype's checksum and norm, every
/// gallery's counters, and all names. An error says that it could not be checked; faults are in the report.
pub fn verify(folder: &Path) -> Result<VerifyReport, StoreError> {
    let store = Store::open_read_only(folder)?;
    let mut report = VerifyReport::default();
    // A database too broken to be read is a fault too, and ends the check.
    match check(&store.db, &mut report) {
        Ok(()) => Ok(report),
        Err(StoreError::Sqlite(error)) => {
            report.add(None, None, error.to_string());
            Ok(report)
        }
        Err(error) => Err(error),
    }
}

fn check(db: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
    let transaction = db.unchecked_transaction()?;
    check_structure(&transaction, report)?;
    let mut statement = transaction.prepare("SELECT name, id FROM galleries ORDER BY name")?;
    let galleries: Vec<(String, i64)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (gallery, _) in &galleries {
        report.galleries += 1;
        match check_gallery(&transaction, gallery, report) {
            // Too broken to be looked into; the others are looked into all the same.
            Err(StoreError::CorruptGallery { problem, .. }) => report.add(Some(gallery), None, problem),
            other => other?,
        }
    }
    check_removed(&transaction, report)?;
    let known = galleries.into_iter().map(|(_, number)| number).collect();
    check_strays(&transaction, &known, report)
}

/// SQLite's own checks.
fn check_structure(db: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
    let mut statement = db.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let problem: String = row.get(0)?;
        if problem != "ok" {
            report.add(None, None, problem);
        }
    }
    let mut statement = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, rowid, parent): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        report.add(None, None, format!("row {rowid} of {table} refers to no row of {parent}"));
    }
    Ok(())
}

fn check_gallery(db: &Connection, gallery: &str, report: &mut VerifyReport) -> Result<(), StoreError> {
    report.check_name(gallery, None, "name", gallery);
    let key: GalleryKey = require_gallery(db, gallery)?;
    let profile = read::profile(db, gallery)?;
    if !profile.model_id.is_empty() {
        report.check_name(gallery, None, "model id", &profile.model_id);
    }
    let (_, names) = read::load_identities(db, key, gallery)?;
    let mut sorted: Vec<&str> = names.iter().collect();
    sorted.sort_unstable();
    for name in &sorted {
        report.check_name(gallery, None, "identity", name);
    }
    let mut greatest = None;
    let mut owners = HashSet::new();
    read::each_prototype(db, key, profile.dim, &names, |prototype| {
        report.prototypes += 1;
        match prototype {
            Ok(prototype) => {
                let index = Some(prototype.index);
                greatest = index;
                report.check_name(gallery, index, "id", prototype.id);
                if !prototype.source.is_empty() {
                    report.check_name(gallery, index, "source", prototype.source);
                }
                if !owners.contains(prototype.identity) {
                    owners.insert(prototype.identity.to_owned());
                }
            }
            Err(damage) => {
                greatest = Some(damage.index);
                let problem = format!("of {:?}: {}", damage.identity, damage.problem);
                report.add(Some(gallery), Some(damage.index), problem);
                owners.insert(damage.identity);
            }
        }
        Ok(())
    })?;
    if let Some(greatest) = greatest.filter(|greatest| *greatest >= key.next_index) {
        let problem = format!("expected a next index above {greatest}, got {}", key.next_index);
        report.add(Some(gallery), None, problem);
    }
    for name in sorted.into_iter().filter(|name| !owners.contains(*name)) {
        report.add(
            Some(gallery),
            None,
            format!("expected at least one prototype of identity {name:?}, got none"),
        );
    }
    Ok(())
}

/// What is kept of removed galleries: names, counters, none of a gallery that is there, and no more than are kept.
fn check_removed(db: &Connection, report: &mut VerifyReport) -> Result<(), StoreError> {
    let mut statement = db.prepare(
        "SELECT r.name, r.generation, r.next_index, g.id IS NOT NULL
         FROM removed_galleries r LEFT JOIN galleries g ON g.name = r.name ORDER BY r.name",
    )?;
    let mut rows = statement.query([])?;
    let mut kept = 0;
    while let Some(row) = rows.next()? {
        let (name, is_there): (String, bool) = (row.get(0)?, row.get(3)?);
        let mut add =
            |problem: String| report.add(None, None, format!("removed gallery {name:?}: {problem}"));
        // The one without a name stands for those that are not kept singly.
        if !name.is_empty() {
            kept += 1;
            if let Err(problem) = check_name(&name) {
                add(problem.to_string());
            }
            if is_there {
                add("expected none of that name, got one that is there".to_owned());
            }
        }
        if let Err(problem) = schema::counters(row.get(1)?, row.get(2)?) {
            add(problem);
        }
    }
    if kept > removed::MAX_REMOVED {
        let most = removed::MAX_REMOVED;
        report.add(None, None, format!("expected at most {most} removed galleries, got {kept}"));
    }
    Ok(())
}

/// Prototypes whose key names a gallery that is not there.
fn check_strays(db: &Connection, known: &HashSet<i64>, report: &mut VerifyReport) -> Result<(), StoreError> {
    let mut next = db.prepare("SELECT key FROM prototypes WHERE key >= :from ORDER BY key LIMIT 1")?;
    let mut from = i64::MIN;
    loop {
        let mut rows = next.query(named_params! { ":from": from })?;
        let Some(row) = rows.next()? else { return Ok(()) };
        let number = schema::gallery_of(row.get(0)?);
        if !known.contains(&number) {
            report.add(None, None, format!("prototypes of gallery number {number}, which is not there"));
        }
        match number.checked_add(1).filter(|next| (0..schema::NUMBER_END).contains(next)) {
            Some(next_number) => from = schema::key(next_number, 0),
            None if number < 0 => from = 0,
            None => return Ok(()),
        }
    }
}
