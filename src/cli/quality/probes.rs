//! Probes of whom it is known who they are: a gallery's own prototypes, or a file's.

use std::path::Path;

use anyhow::{Context, anyhow};

use super::Steps;
use crate::backend::RowSet;
use crate::domain::Embedding;
use crate::gallery::{Place, ProbeRecord, PrototypeRecord, Snapshot, formats};
use crate::quality::ask::{Asking, row_as_probe};
use crate::quality::compare::Answers;
use crate::quality::validate::Labelled;
use crate::recognize::{Exclusions, Probe, Recognition};

/// Who is asked about, and who they are.
pub(super) struct Probes {
    pub(super) labels: Vec<Labelled>,
    probes: Vec<Probe>,
}

impl Probes {
    /// Every prototype of a gallery, itself left out.
    pub(super) fn of_gallery(snapshot: &Snapshot) -> Self {
        let mut rows: Vec<usize> = (0..snapshot.row_count()).collect();
        rows.sort_by_key(|&row| snapshot.index(row));
        let label = |&row: &usize| {
            let view = snapshot.row(row);
            let identity = snapshot.identity(view.identity).name.read();
            let id = format!("{identity}/{}", view.prototype_id.read());
            Labelled { id, identity, own_rows: vec![row as u32] }
        };
        let probe = |&row: &usize| {
            row_as_probe(snapshot, row, Exclusions { rows: vec![row as u32], ..Exclusions::default() })
        };
        Self { labels: rows.iter().map(label).collect(), probes: rows.iter().map(probe).collect() }
    }

    /// The probes of a file; the rows of an .npy are told by labels beside it.
    pub(super) fn read(path: &Path, labels: Option<&Path>, snapshot: &Snapshot) -> anyhow::Result<Self> {
        let records = match labels {
            Some(labels) => read_with_labels(path, labels)?,
            None => formats::read_probes(path)?,
        };
        let mut probes = Self { labels: Vec::new(), probes: Vec::new() };
        for record in records {
            probes.take(record, snapshot, labels.is_some())?;
        }
        Ok(probes)
    }

    fn take(&mut self, record: ProbeRecord, snapshot: &Snapshot, qualified: bool) -> anyhow::Result<()> {
        let ProbeRecord { id, identity, place, embedding, .. } = record;
        let identity = identity.ok_or_else(|| {
            anyhow!("{place}: expected an identity (with an .npy, by --labels), got a probe that does not say who it is")
        })?;
        let person = snapshot.place_of(&identity);
        let own = person.and_then(|place| snapshot.prototype_in(place, &id)).map(|row| row as u32);
        let exclude = Exclusions {
            identities: record.exclude_identities,
            prototypes: record.exclude_prototypes,
            sources: record.exclude_sources,
            rows: own.into_iter().collect(),
        };
        let skip = exclude.rows(snapshot);
        let rows = person.map_or(0..0, |place| snapshot.rows_of(place));
        let own_rows = rows.map(|row| row as u32).filter(|row| skip.contains(*row)).collect();
        let id = if qualified { format!("{identity}/{id}") } else { id };
        self.labels.push(Labelled { id, identity, own_rows });
        self.probes.push(Probe {
            embedding: parsed(embedding, snapshot, &place)?,
            group: record.group,
            exclude,
        });
        Ok(())
    }

    /// Whether any of them belongs to a photo.
    pub(super) fn are_grouped(&self) -> bool {
        self.probes.iter().any(|probe| !probe.group.is_empty())
    }

    /// What a backend answers; with a `depth`, the first so many rows of each probe too.
    pub(super) async fn ask(&self, asking: &Asking<'_>, depth: Option<usize>) -> anyhow::Result<Answers> {
        let (snapshot, count) = (asking.snapshot, self.probes.len());
        let steps = Steps::new("recognising");
        let mut show = |done, of| steps.show(done, of);
        let recognitions: Vec<Recognition> =
            asking.recognize(count, |at| self.probes[at].clone(), 2, &mut show).await?;
        let (mut whole, mut left_out) = (Vec::new(), Vec::new());
        if let Some(k) = depth {
            let vector = |at: usize| self.probes[at].embedding.as_slice();
            whole = asking.search(count, |at| (vector(at), RowSet::default()), k, &mut show).await?;
            let rest = |at: usize| (vector(at), self.probes[at].exclude.rows(snapshot));
            left_out = asking.search(count, rest, k, &mut show).await?;
        }
        Ok(Answers { recognitions, whole, left_out })
    }
}

fn parsed(embedding: Vec<f32>, snapshot: &Snapshot, place: &Place) -> anyhow::Result<Embedding> {
    let profile = snapshot.profile();
    Embedding::parse(embedding, profile.dim, profile.norm).with_context(|| format!("{place}: embedding"))
}

/// Probes of an .npy and who they are.
fn read_with_labels(path: &Path, labels: &Path) -> anyhow::Result<Vec<ProbeRecord>> {
    let records = formats::read_prototypes(path, Some(labels), &mut |_| ())?;
    let probe = |record: PrototypeRecord| ProbeRecord {
        id: record.id,
        group: String::new(),
        source: record.source,
        identity: Some(record.identity),
        exclude_identities: Vec::new(),
        exclude_prototypes: Vec::new(),
        exclude_sources: Vec::new(),
        embedding: record.embedding,
        place: record.place,
    };
    Ok(records.into_iter().map(probe).collect())
}
