//! From ranked rows to ranked identities: which scans that takes, and what they find.
//!
//! Identities are ranked by the order in which their rows first appear in the total order of rows, so the first k rows rank
//! all identities that occur in them. No identity has more rows than the gallery's largest, so `(wanted - 1) * largest + 1` rows
//! always hold `wanted` identities, and one scan does: that is the way of nearly all galleries. Where that is far more than such
//! rows mostly need (one person has thousands of prototypes), fewer are asked for; should they hold too few
//! identities, the rows of those already ranked are left out and the rest is scanned again: what comes first there comes next.
//!
//! Invariant: what is found does not depend on how many scans it took.

use std::collections::HashSet;
use std::sync::Arc;

use super::RecognizeQuery;
use super::pipeline::skips_of;
use crate::backend::RowSet;
use crate::domain::Matrix;
use crate::engine::{Ranked, RawCheck, ScanAnswer, ScanRequest};
use crate::gallery::Snapshot;

/// Least and most rows of a scan that may hold too few identities.
const GUESSED_ROWS: (usize, usize) = (32, 512);

/// Most rows of any scan.
const MOST_ROWS: usize = 4096;

/// Ranks the identities of every probe of a query: asks for scans, and takes what they found.
pub(super) struct Ranker<'a> {
    query: &'a RecognizeQuery,
    /// Identities to rank for each probe: those that are listed, and two for the margin.
    wanted: usize,
    rankings: Vec<Ranking>,
    /// For each probe what the raw scores of its scans showed.
    checks: Vec<RawCheck>,
    /// The probes of the scan asked for last.
    open: Vec<usize>,
    scans: u32,
}

impl<'a> Ranker<'a> {
    pub(super) fn new(query: &'a RecognizeQuery) -> Self {
        let snapshot = &query.snapshot;
        Self {
            query,
            wanted: query.max_candidates.max(2).min(snapshot.identity_count()),
            rankings: skips_of(&query.probes, snapshot).into_iter().map(Ranking::new).collect(),
            checks: vec![RawCheck::default(); query.probes.len()],
            open: Vec::new(),
            scans: 0,
        }
    }

    /// The next scan to make; `None` where all is ranked.
    pub(super) fn next_scan(&mut self) -> Option<ScanRequest> {
        let snapshot = &self.query.snapshot;
        let missing = |ranking: &Ranking| self.wanted.saturating_sub(ranking.leading.len());
        self.open = (0..self.rankings.len())
            .filter(|&probe| {
                let ranking = &self.rankings[probe];
                missing(ranking) > 0 && ranking.skip.len() < snapshot.row_count()
            })
            .collect();
        let most = self.open.iter().map(|&probe| missing(&self.rankings[probe])).max()?;
        let k = rows_for(snapshot, most, self.scans).min(snapshot.row_count());
        self.scans += 1;
        let probes = self.open.iter().map(|&probe| self.query.probes[probe].embedding.as_slice());
        Some(ScanRequest {
            snapshot: Arc::clone(snapshot),
            probes: Arc::new(Matrix::from_rows(snapshot.profile().dim, probes)),
            skips: self.open.iter().map(|&probe| self.rankings[probe].skip.clone()).collect(),
            k,
        })
    }

    /// Takes the answer to the scan asked for last: for each of its probes the first rows.
    pub(super) fn take(&mut self, answer: &ScanAnswer) {
        for ((&probe, ranked), check) in self.open.iter().zip(&answer.probes).zip(&answer.checks) {
            self.rankings[probe].extend(&self.query.snapshot, ranked, self.wanted);
            self.checks[probe].add(*check);
        }
    }

    /// For each probe the leading identities, each by its best row, in the total order; and what the raw scores showed.
    pub(super) fn finish(self) -> (Vec<Vec<Ranked>>, Vec<RawCheck>) {
        (self.rankings.into_iter().map(|ranking| ranking.leading).collect(), self.checks)
    }
}

/// How many rows to ask for so that they hold `missing` identities; rows that were left out only make it fewer.
pub(super) fn rows_for(snapshot: &Snapshot, missing: usize, former_scans: u32) -> usize {
    let sure = (missing - 1) * snapshot.largest_identity() + 1;
    // As many of average size, and as much again, will mostly do.
    let average = snapshot.row_count().div_ceil(snapshot.identity_count().max(1));
    let likely = 2 * missing * average;
    let (least, most) = GUESSED_ROWS;
    if sure <= most.max(likely.min(MOST_ROWS)) {
        return sure;
    }
    // Each time that was too few, twice as many.
    (likely.clamp(least, most) << former_scans.min(8)).min(MOST_ROWS)
}

/// The identities of one probe ranked so far.
struct Ranking {
    /// Each identity's best row, in the total order.
    leading: Vec<Ranked>,
    /// Rows that need no more scanning: left out by the probe, or of an identity that is ranked.
    skip: RowSet,
}

impl Ranking {
    fn new(skip: RowSet) -> Self {
        Self { leading: Vec::new(), skip }
    }

    /// Takes the first rows of those not skipped.
    fn extend(&mut self, snapshot: &Snapshot, ranked: &[Ranked], wanted: usize) {
        let before = self.leading.len();
        let mut seen = HashSet::new();
        for row in ranked {
            if self.leading.len() == wanted {
                // Nothing more will be asked, so nothing need be left out of it.
                return;
            }
            if seen.insert(snapshot.identity_of(row.row as usize)) {
                self.leading.push(*row);
            }
        }
        let mut ranges = self.skip.ranges().to_vec();
        for row in &self.leading[before..] {
            let rows = snapshot.rows_of(snapshot.identity_of(row.row as usize));
            ranges.push((rows.start as u32, rows.end as u32));
        }
        self.skip = RowSet::from_ranges(ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Sources};
    use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
    use crate::engine::Engine;
    use crate::gallery::GalleryProfile;
    use crate::recognize::{Exclusions, Probe};

    /// One identity of each given size; prototypes come in turns, so that insertion is not the order of rows.
    fn gallery(sizes: &[usize]) -> Arc<Snapshot> {
        let mut places: Vec<(usize, usize)> =
            sizes.iter().enumerate().flat_map(|(who, &size)| (0..size).map(move |id| (id, who))).collect();
        places.sort_unstable();
        let prototypes = places.iter().enumerate().map(|(index, &(id, who))| {
            let key = PrototypeKey { identity: format!("p{who}"), id: id.to_string() };
            let embedding = near(who, id as f32 * 1e-3);
            let (source, origin) = (String::new(), Origin::Import);
            (index as u64, Prototype { key, source, origin, created_ms: 0, embedding })
        });
        Arc::new(Snapshot::new(GalleryProfile::named("made", 8), Vec::new(), prototypes.collect()))
    }

    /// A direction of each identity, the later the further from the first, turned a little by `off`.
    fn near(who: usize, off: f32) -> Embedding {
        let angle = who as f32 * 0.04 + off;
        let values = (0..8).map(|i| if i == 0 { angle.cos() } else { angle.sin() * (i as f32 + who as f32) });
        Embedding::parse(values.collect(), 8, NormPolicy::Normalise).unwrap()
    }

    fn query(snapshot: &Arc<Snapshot>, leave_out: &[&[&str]], max_candidates: usize) -> RecognizeQuery {
        let probe = |identities: &&[&str]| Probe {
            embedding: near(0, 0.0),
            group: String::new(),
            exclude: Exclusions {
                identities: identities.iter().map(|name| (*name).to_owned()).collect(),
                ..Exclusions::default()
            },
        };
        RecognizeQuery {
            snapshot: Arc::clone(snapshot),
            probes: leave_out.iter().map(probe).collect(),
            threshold: None,
            min_margin: None,
            max_candidates,
            unique_in_group: false,
        }
    }

    /// The k of each scan that it took, and what was ranked.
    fn rank(query: &RecognizeQuery) -> (Vec<usize>, Vec<Vec<Ranked>>) {
        let flags = vec!["backend.kind=reference".to_owned()];
        let settings = config::load(&Sources { flags, ..Sources::default() }).unwrap();
        let engine = Engine::start(&settings.backend, 1).unwrap();
        engine.load(Arc::clone(&query.snapshot), None).unwrap();
        let (mut ranker, mut ks) = (Ranker::new(query), Vec::new());
        while let Some(request) = ranker.next_scan() {
            ks.push(request.k);
            ranker.take(&engine.scan_blocking(request).unwrap());
        }
        (ks, ranker.finish().0)
    }

    /// What a list of all rows says: each identity's first row.
    fn expected(query: &RecognizeQuery, probe: usize) -> Vec<u32> {
        let (snapshot, asked) = (&query.snapshot, &query.probes[probe]);
        let skip = asked.exclude.rows(snapshot);
        let mut rows: Vec<(f32, u64, u32)> = (0..snapshot.row_count() as u32)
            .filter(|row| !skip.contains(*row))
            .map(|row| {
                let stored = snapshot.matrix().row(row as usize);
                let score = crate::domain::canonical_score(asked.embedding.as_slice(), stored);
                (score, snapshot.index(row as usize), row)
            })
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut seen = HashSet::new();
        rows.retain(|(_, _, row)| seen.insert(snapshot.identity_of(*row as usize)));
        rows.truncate(query.max_candidates.max(2));
        rows.into_iter().map(|(_, _, row)| row).collect()
    }

    fn check(query: &RecognizeQuery) -> Vec<usize> {
        let (ks, ranked) = rank(query);
        for (probe, ranked) in ranked.iter().enumerate() {
            let rows: Vec<u32> = ranked.iter().map(|one| one.row).collect();
            assert_eq!(rows, expected(query, probe), "probe {probe} after scans of {ks:?}");
        }
        ks
    }

    #[test]
    fn identities_of_five_rows_need_one_scan_of_six() {
        let snapshot = gallery(&[5; 200]);
        assert_eq!(check(&query(&snapshot, &[&[]], 1)), [6]);
        assert_eq!(check(&query(&snapshot, &[&[], &["p0"]], 2)), [6]);
        assert_eq!(check(&query(&snapshot, &[&[]], 5)), [21]);
        // Beyond what is guessed, but no more than so many identities need anyway.
        assert_eq!(check(&query(&snapshot, &[&[]], 200)), [996]);
    }

    #[test]
    fn rows_left_out_cost_no_further_scan() {
        let snapshot = gallery(&[5; 4]);
        let all_but_one: &[&str] = &["p0", "p1", "p3"];
        let all: &[&str] = &["p0", "p1", "p2", "p3"];
        assert_eq!(check(&query(&snapshot, &[all_but_one, &[], all], 3)), [11]);
        assert_eq!(check(&query(&snapshot, &[all], 3)), [0; 0]);
    }

    #[test]
    fn a_gallery_of_one_identity_needs_one_row() {
        assert_eq!(check(&query(&gallery(&[70]), &[&[]], 5)), [1]);
    }

    /// The largest identity is first, so that the first rows are all its own.
    #[test]
    fn a_largest_identity_beyond_a_scan_is_left_out_of_a_second() {
        let mut sizes = [3; 300];
        sizes[0] = 600;
        let snapshot = gallery(&sizes);
        assert_eq!(check(&query(&snapshot, &[&[]], 1)), [32, 1], "of the second scan the first row does");
        // Who is not near that person is ranked at once.
        assert_eq!(check(&query(&snapshot, &[&["p0"]], 2)), [32]);
        assert_eq!(check(&query(&snapshot, &[&[], &["p0"]], 4)), [40, 64]);
        sizes[0] = 511;
        assert_eq!(
            check(&query(&gallery(&sizes), &[&[]], 1)),
            [512],
            "what is surely enough is small enough"
        );
    }

    #[test]
    fn an_empty_gallery_needs_no_scan() {
        assert_eq!(check(&query(&gallery(&[]), &[&[], &[]], 3)), [0; 0]);
    }
}
