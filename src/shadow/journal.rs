//! What is kept on disk: `disagreements.jsonl`, put aside once it has its full size, and `state.json`, written whole each time.
//!
//! Invariants: the folder and what is in it can be read by its owner alone; a line is whole or ignored; a state that cannot be read, or
//! speaks of other machines, counts as none. What cannot be written is logged and given up: no answer waits for a disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::record::{Machines, Record};
use super::rollout::Rollout;
use crate::config::RecordSettings;
use crate::gallery::files;

const RECORDS: &str = "disagreements.jsonl";
const FORMER_RECORDS: &str = "disagreements.1.jsonl";
const STATE: &str = "state.json";

/// The form of [`State`]; another one is not read.
const FORMAT: u32 = 1;

/// Longest line that is read: a record with an embedding of 4096 numbers is a tenth of it.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Where the latest records are looked for, of either file: a start must not read all of it.
const MAX_TAIL_BYTES: u64 = 4 << 20;

/// Largest state that is read.
const MAX_STATE_BYTES: u64 = 16 << 20;

/// What survives a restart, beside the disagreements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) format: u32,
    pub(super) machines: Machines,
    /// `shadow.sampling` at the time: where it has changed since, that counts.
    pub(super) configured_sampling: f64,
    pub(super) sampling: f64,
    pub(super) rollout: Rollout,
    pub(super) evidence: Evidence,
}

impl State {
    /// Of these machines, with nothing seen yet.
    pub(super) fn new(machines: Machines, sampling: f64, now_ms: u64) -> Self {
        Self {
            format: FORMAT,
            machines,
            configured_sampling: sampling,
            sampling,
            rollout: Rollout::default(),
            evidence: Evidence::since(now_ms),
        }
    }
}

/// The folder, opened for writing.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    max_bytes: u64,
    records: File,
    bytes: u64,
    /// Whether the latest write failed: one line in the log is enough.
    failing: bool,
}

impl Journal {
    /// Opens the folder, and makes it where it is not there.
    pub(super) fn open(folder: &Path, settings: &RecordSettings) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
        let records = append_to(&folder.join(RECORDS))?;
        let bytes = records.metadata()?.len();
        Ok(Self { folder: folder.to_owned(), max_bytes: settings.max_bytes, records, bytes, failing: false })
    }

    /// Whether [`Self::open`] would succeed, as far as that can be told without making anything that stays.
    pub(super) fn check(folder: &Path) -> io::Result<()> {
        let there = folder.ancestors().find_map(|one| {
            let one = if one.as_os_str().is_empty() { Path::new(".") } else { one };
            fs::symlink_metadata(one).ok().map(|_| one)
        });
        let Some(there) = there else { return Err(io::ErrorKind::NotFound.into()) };
        // A link may lead nowhere.
        if !fs::metadata(there)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        // It has no name, or loses it at once.
        drop(tempfile::tempfile_in(there)?);
        match own(OpenOptions::new().append(true)).open(folder.join(RECORDS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Adds a line.
    pub(super) fn append(&mut self, record: &Record) {
        let written = self.try_append(record);
        self.note(written, RECORDS);
    }

    fn try_append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.max_bytes {
            fs::rename(self.folder.join(RECORDS), self.folder.join(FORMER_RECORDS))?;
            self.records = append_to(&self.folder.join(RECORDS))?;
            self.bytes = 0;
        }
        self.records.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Writes the state in place of the former one.
    pub(super) fn save(&mut self, state: &State) {
        let written = self.try_save(state);
        self.note(written, STATE);
    }

    fn try_save(&self, state: &State) -> io::Result<()> {
        let (next, whole) = (self.folder.join("state.json.next"), self.folder.join(STATE));
        let mut file = own(OpenOptions::new().write(true).create(true).truncate(true)).open(&next)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(next, whole)
    }

    fn note(&mut self, written: io::Result<()>, file: &str) {
        if let Err(error) = &written
            && !self.failing
        {
            let error = files::advice(error);
            tracing::error!(%error, file, folder = %self.folder.display(), "the shadow's record cannot be written: it goes on without");
        }
        self.failing = written.is_err();
    }

    /// The state, if there is one of the form that this program writes.
    pub(super) fn state(&self) -> Option<State> {
        let file = File::open(self.folder.join(STATE)).ok()?;
        let mut text = String::new();
        file.take(MAX_STATE_BYTES).read_to_string(&mut text).ok()?;
        let read: Result<State, _> = serde_json::from_str(&text);
        match read {
            Ok(state) if state.format == FORMAT && state.evidence.is_sound() => Some(state),
            Ok(_) | Err(_) => {
                tracing::warn!(folder = %self.folder.display(), "the shadow's state cannot be read: it begins anew");
                None
            }
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    own(OpenOptions::new().append(true).create(true)).open(path)
}

/// Makes what is created the owner's alone.
fn own(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// The records in the last so many bytes of either file, oldest first, as far as lines can be read.
fn records(folder: &Path, tail_bytes: u64) -> impl Iterator<Item = Record> {
    [FORMER_RECORDS, RECORDS]
        .into_iter()
        .filter_map(move |name| {
            let mut file = File::open(folder.join(name)).ok()?;
            let bytes = file.metadata().ok()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(tail_bytes))).ok()?;
            Some(file)
        })
        .flat_map(|file| lines(BufReader::new(file)))
        .filter_map(|line| serde_json::from_slice(&line).ok())
}

fn lines(mut reader: impl BufRead) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        // A longer line is cut in pieces, none of which is a record.
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
        (read > 0).then_some(line)
    })
}

/// The record of this id. Reads files: not for a runtime thread.
pub(super) fn find(folder: &Path, id: &str) -> Option<Record> {
    records(folder, u64::MAX).find(|record| record.id == id)
}

/// The latest records, oldest first.
pub(super) fn latest(folder: &Path, count: usize) -> Vec<Record> {
    let mut latest = std::collections::VecDeque::with_capacity(count);
    for record in records(folder, MAX_TAIL_BYTES) {
        if latest.len() == count {
            latest.pop_front();
        }
        latest.push_back(record);
    }
    latest.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::record::SideRecord;
    use super::super::{Sides, record::AskedRecord};
    use super::*;
    use crate::telemetry::ShadowKind;

    fn record(id: usize) -> Record {
        Record {
            id: format!("id-{id}"),
            at_ms: id as u64,
            request_id: "r".to_owned(),
            probe: Some(0),
            gallery: "default".to_owned(),
            generation: 1,
            kinds: vec!["score".to_owned()],
            error: String::new(),
            asked: AskedRecord::default(),
            sides: Sides {
                primary: SideRecord::default(),
                shadow: SideRecord { score_error: 0.25, ..SideRecord::default() },
            },
            embedding: None,
        }
    }

    fn settings(max_bytes: u64) -> RecordSettings {
        RecordSettings { path: None, max_bytes, embeddings: false }
    }

    #[test]
    fn files_are_put_aside_at_their_full_size_and_nothing_grows_beyond_two() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("made/by us");
        let one = serde_json::to_vec(&record(100)).unwrap().len() as u64 + 1;
        let mut journal = Journal::open(&folder, &settings(10 * one)).unwrap();
        (100..135).for_each(|id| journal.append(&record(id)));
        let size = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
        assert_eq!((size(FORMER_RECORDS), size(RECORDS)), (10 * one, 5 * one));
        assert_eq!(find(&folder, "id-134"), Some(record(134)));
        assert_eq!(find(&folder, "id-119"), None, "it was in a file that is gone");
        let kept: Vec<String> = latest(&folder, 12).into_iter().map(|record| record.id).collect();
        assert_eq!((kept.len(), kept[0].as_str(), kept[11].as_str()), (12, "id-123", "id-134"));
        for (path, mode) in [(folder.clone(), 0o700), (folder.join(RECORDS), 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        // Opened again it goes on where it was.
        let mut journal = Journal::open(&folder, &settings(10 * one)).unwrap();
        (135..141).for_each(|id| journal.append(&record(id)));
        assert_eq!((size(FORMER_RECORDS), size(RECORDS)), (10 * one, one));
    }

    #[test]
    fn a_broken_line_costs_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), &settings(1 << 20)).unwrap();
        journal.append(&record(1));
        journal.records.write_all(b"{\"id\": \"half\n\xff\xfe\n").unwrap();
        journal.append(&record(2));
        assert_eq!(latest(folder.path(), 9), [record(1), record(2)]);
    }

    #[test]
    fn the_state_is_what_was_saved_last_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), &settings(1 << 20)).unwrap();
        assert_eq!(journal.state(), None);
        let mut state = State::new(Machines::default(), 0.5, 3);
        state.evidence.count(ShadowKind::Agree, 7);
        state.evidence.score_error.record(1e-7);
        state.rollout.promote(9, "why".to_owned());
        for _ in 0..2 {
            journal.save(&state);
            assert_eq!(journal.state(), Some(state.clone()));
            state.evidence.count(ShadowKind::Order, 1);
        }
        for broken in ["", "{", "{\"format\": 2}"] {
            fs::write(folder.path().join(STATE), broken).unwrap();
            assert_eq!(journal.state(), None, "{broken:?}");
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_costs_nothing_but_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), &settings(1)).unwrap();
        journal.append(&record(1));
        fs::remove_dir_all(folder.path()).unwrap();
        journal.append(&record(2));
        journal.save(&State::new(Machines::default(), 0.5, 3));
        assert!(journal.failing);
    }
}
