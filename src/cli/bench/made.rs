//! What is searched and searched for: vectors read from files, or made.

use std::path::Path;

use anyhow::{Context, bail};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use super::{BenchArgs, Usage};
use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
use crate::gallery::{DEFAULT_GALLERY, GalleryProfile, Place, PrototypeRecord, Snapshot, formats};

/// Most bytes of made vectors.
const MAX_MADE_BYTES: usize = 64 << 30;

/// What is made where nobody says.
const ROWS: usize = 350_000;
const DIM: usize = 128;
const PROBES: usize = 256;

/// Rows and probes of one dim, at least one of each.
pub(super) struct Vectors {
    pub(super) rows: Vec<Embedding>,
    pub(super) probes: Vec<Embedding>,
    /// So many consecutive rows are of one identity.
    pub(super) rows_per_identity: usize,
}

impl Vectors {
    /// Reads or makes what the arguments say.
    pub(super) fn of(args: &BenchArgs) -> anyhow::Result<Self> {
        let said = args.rows.or(args.dim).or(args.probes_count).is_some();
        let (rows, probes) = match (&args.gallery, &args.probes) {
            (Some(gallery), Some(probes)) if !said => (read(gallery)?, read(probes)?),
            (None, None) => made(&Made::of(args)?),
            (Some(_), _) | (None, Some(_)) => {
                let text = "--gallery and --probes go together, and not with --rows, --dim or --probes-count";
                return Err(Usage(text.to_owned()).into());
            }
        };
        let (Some(first), Some(probe)) = (rows.first(), probes.first()) else {
            bail!("expected at least one row and one probe, got {} and {}", rows.len(), probes.len());
        };
        if first.dim() != probe.dim() {
            bail!("rows have {} components, probes {}", first.dim(), probe.dim());
        }
        Ok(Self { rows, probes, rows_per_identity: args.rows_per_identity })
    }

    /// Components of every vector.
    pub(super) fn dim(&self) -> usize {
        self.probes[0].dim()
    }

    /// The rows as the default gallery, ready for scanning (its indices are the rows' places), and the probes.
    pub(super) fn into_snapshot(self) -> (Snapshot, Vec<Embedding>) {
        let profile = GalleryProfile::named(DEFAULT_GALLERY, self.dim());
        let prototypes = self.rows.into_iter().enumerate().map(|(row, embedding)| {
            let (identity, id) = names_of(row, self.rows_per_identity);
            let key = PrototypeKey { identity, id };
            let source = String::new();
            (row as u64, Prototype { key, source, origin: Origin::Import, created_ms: 0, embedding })
        });
        (Snapshot::new(profile, Vec::new(), prototypes.collect()), self.probes)
    }

    /// The rows as a file would give them, and the probes.
    pub(super) fn into_records(self) -> (Vec<PrototypeRecord>, Vec<Embedding>) {
        let place = Place::file(Path::new("made"));
        let records = self.rows.into_iter().enumerate().map(|(row, embedding)| {
            let (identity, id) = names_of(row, self.rows_per_identity);
            PrototypeRecord {
                identity,
                id,
                source: String::new(),
                origin: Origin::Import,
                embedding: embedding.as_slice().to_vec(),
                place: place.row(row as u64),
            }
        });
        (records.collect(), self.probes)
    }
}

/// A gallery of made vectors of the usual dimension, and probes.
pub(in crate::cli) fn gallery(rows: usize, probes: usize) -> (Snapshot, Vec<Embedding>) {
    let rows_per_identity = 5;
    let (rows, probes) = made(&Made { rows, rows_per_identity, dim: DIM, probes, seed: 1 });
    Vectors { rows, probes, rows_per_identity }.into_snapshot()
}

/// Whose row this is, and which of theirs.
fn names_of(row: usize, rows_per_identity: usize) -> (String, String) {
    (format!("p{}", row / rows_per_identity), (row % rows_per_identity).to_string())
}

fn read(path: &Path) -> anyhow::Result<Vec<Embedding>> {
    let vectors = formats::read_vectors(path, &mut |_| ())?;
    let dim = vectors.dim();
    let parse = |(row, values): (usize, &[f32])| {
        Embedding::parse(values.to_vec(), dim, NormPolicy::Normalise)
            .with_context(|| format!("{} row {row}", path.display()))
    };
    vectors.rows().enumerate().map(parse).collect()
}

/// How many vectors of which size are made, and from what.
pub(in crate::cli) struct Made {
    pub(in crate::cli) rows: usize,
    pub(in crate::cli) rows_per_identity: usize,
    pub(in crate::cli) dim: usize,
    pub(in crate::cli) probes: usize,
    pub(in crate::cli) seed: u64,
}

impl Made {
    fn of(args: &BenchArgs) -> anyhow::Result<Self> {
        let made = Self {
            rows: args.rows.unwrap_or(ROWS),
            rows_per_identity: args.rows_per_identity,
            dim: args.dim.unwrap_or(DIM),
            probes: args.probes_count.unwrap_or(PROBES),
            seed: args.seed,
        };
        let bytes = (made.rows + made.probes).saturating_mul(made.dim * size_of::<f32>());
        if bytes > MAX_MADE_BYTES {
            return Err(
                Usage(format!("expected at most {MAX_MADE_BYTES} bytes of vectors, got {bytes}")).into()
            );
        }
        Ok(made)
    }
}

/// Rows in clusters, one an identity, and probes near some of the rows: unit vectors of normally distributed components.
pub(in crate::cli) fn made(made: &Made) -> (Vec<Embedding>, Vec<Embedding>) {
    let mut random = ChaCha8Rng::seed_from_u64(made.seed);
    let mut near = |centre: Option<&Embedding>, spread: f32| loop {
        let scale = spread / (made.dim as f32).sqrt();
        let values = (0..made.dim).map(|component| {
            let noise: f32 = StandardNormal.sample(&mut random);
            centre.map_or(0.0, |centre| centre.as_slice()[component]) + noise * scale
        });
        // Only an all but impossible draw of zeros is no embedding.
        if let Ok(embedding) = Embedding::parse(values.collect(), made.dim, NormPolicy::Normalise) {
            return embedding;
        }
    };
    let mut rows: Vec<Embedding> = Vec::with_capacity(made.rows);
    while rows.len() < made.rows {
        let centre = near(None, 1.0);
        for _ in 0..made.rows_per_identity.min(made.rows - rows.len()) {
            rows.push(near(Some(&centre), 0.8));
        }
    }
    let step = (rows.len() / made.probes).max(1);
    let probes = (0..made.probes).map(|probe| near(rows.get(probe * step % rows.len()), 0.6)).collect();
    (rows, probes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_rows_are_of_one_identity() {
        let plan = Made { rows: 7, rows_per_identity: 3, dim: 16, probes: 2, seed: 5 };
        let (rows, probes) = made(&plan);
        let vectors = Vectors { rows, probes, rows_per_identity: 3 };
        assert_eq!((vectors.rows.len(), vectors.probes.len(), vectors.dim()), (7, 2, 16));
        let fifth = vectors.rows[5].clone();
        let (snapshot, _) = vectors.into_snapshot();
        let sizes: Vec<usize> = snapshot.identities().map(|one| one.rows.len()).collect();
        assert_eq!((sizes, snapshot.largest_identity()), (vec![3, 3, 1], 3));
        assert_eq!(names_of(5, 3), ("p1".to_owned(), "2".to_owned()));
        assert_eq!(snapshot.matrix().row(5), fifth.as_slice());
    }
}
