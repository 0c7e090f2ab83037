//! Groups probes that nobody knows, so that a person need be asked "who is this?" once for each group.
//!
//! Density-based (DBSCAN, Ester et al. 1996): probes within reach of each other, at a least score, are neighbors; one with at least `min_points` of
//! them, itself counted, is a core; cores within reach are of one cluster, and a probe that is no core belongs to the first cluster of a core
//! within its reach, or to none. Clusters are numbered by their first cores, so that the result is that of scikit-learn's `DBSCAN` to the letter.
//!
//! The graph is exact: for every probe the nearest ones are asked for, and more of them as long as the last is still within reach. Lists of
//! probes in dense heaps are never held together, only which of them belong together.

use super::ask::{Asking, OnDone};
use crate::backend::RowSet;
use crate::engine::{EngineError, Ranked};

/// Neighbors asked for at first, and how many times as many each time that was too few.
const FIRST_NEIGHBORS: usize = 32;
const MORE: usize = 8;

/// Rows of lists that are held at once, beyond the first ones.
const MOST_HELD: usize = 1 << 22;

/// What makes neighbors, and what makes a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Density {
    /// Least score of neighbors, inclusive.
    pub min_score: f32,
    /// Least neighbors of a core, itself among them; at least 1.
    pub min_points: usize,
}

/// Which cluster each probe belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// By probe, from 0; `None` for those of no cluster.
    pub labels: Vec<Option<u32>>,
    /// By probe, how many others are within reach.
    pub neighbors: Vec<u32>,
    /// How many clusters.
    pub count: usize,
}

impl Clusters {
    /// The probes of each cluster, ascending.
    pub fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.count];
        for (probe, label) in self.labels.iter().enumerate() {
            if let Some(label) = label {
                members[*label as usize].push(probe);
            }
        }
        members
    }

    /// The one with most neighbors, the first of equals: whom to show.
    pub fn typical(&self, members: &[usize]) -> Option<usize> {
        members.iter().copied().max_by_key(|&probe| (self.neighbors[probe], usize::MAX - probe))
    }
}

/// Clusters the rows of a gallery, in physical order.
pub async fn cluster(
    asking: &Asking<'_>,
    density: Density,
    on_done: OnDone<'_>,
) -> Result<Clusters, EngineError> {
    let count = asking.snapshot.row_count();
    let mut k = FIRST_NEIGHBORS.max(density.min_points);
    let all: Vec<usize> = (0..count).collect();
    let lists = nearest(asking, &all, k, on_done).await?;
    let mut growing = Growing::new(count, density.min_points);
    let mut open = Vec::new();
    let mut known = Vec::with_capacity(count);
    for (probe, list) in lists.into_iter().enumerate() {
        let list = within(list, density.min_score);
        if list.len() == k {
            open.push(probe);
        }
        growing.count(probe, list.len());
        known.push(list);
    }
    for (probe, list) in known.iter().enumerate() {
        growing.join(probe, list);
    }
    drop(known);
    // Whoever is left has more than enough neighbors to be a core: all that is asked is which other cores are among them.
    while !open.is_empty() && k < count {
        k = (k * MORE).min(count);
        let mut still = Vec::new();
        for probes in open.chunks((MOST_HELD / k).max(1)) {
            let lists = nearest(asking, probes, k, &mut |_, _| ()).await?;
            for (&probe, list) in probes.iter().zip(lists) {
                let list = within(list, density.min_score);
                if list.len() == k {
                    still.push(probe);
                }
                growing.count(probe, list.len());
                growing.join(probe, &list);
            }
        }
        open = still;
    }
    Ok(growing.finish())
}

async fn nearest(
    asking: &Asking<'_>,
    probes: &[usize],
    k: usize,
    on_done: OnDone<'_>,
) -> Result<Vec<Vec<Ranked>>, EngineError> {
    let rest = |at: usize| {
        let row = probes[at];
        (asking.snapshot.matrix().row(row), RowSet::from_ranges(vec![(row as u32, row as u32 + 1)]))
    };
    asking.search(probes.len(), rest, k, on_done).await
}

fn within(list: Vec<Ranked>, min_score: f32) -> Vec<u32> {
    list.into_iter().take_while(|one| one.score >= min_score).map(|one| one.row).collect()
}

/// Clusters that grow as neighbors become known. Every probe is counted before the first is joined.
#[derive(Debug)]
pub struct Growing {
    min_points: usize,
    neighbors: Vec<u32>,
    /// Of cores: another core of the same cluster, earlier or itself.
    earlier: Vec<u32>,
    /// Those that are no cores, and the neighbors of each.
    borders: Vec<(u32, Vec<u32>)>,
}

impl Growing {
    /// Of so many probes, none joined.
    pub fn new(probes: usize, min_points: usize) -> Self {
        Self {
            min_points,
            neighbors: vec![0; probes],
            earlier: (0..probes as u32).collect(),
            borders: Vec::new(),
        }
    }

    /// Says how many neighbors a probe has, or at least has where that makes it a core.
    pub fn count(&mut self, probe: usize, neighbors: usize) {
        self.neighbors[probe] = neighbors as u32;
    }

    fn is_core(&self, probe: usize) -> bool {
        self.neighbors[probe] as usize + 1 >= self.min_points
    }

    /// Says who the neighbors of a probe are; of a core, as many as are known.
    pub fn join(&mut self, probe: usize, neighbors: &[u32]) {
        if !self.is_core(probe) {
            self.borders.push((probe as u32, neighbors.to_vec()));
            return;
        }
        for &other in
            neighbors.iter().filter(|other| self.neighbors[**other as usize] as usize + 1 >= self.min_points)
        {
            let (a, b) = (first(&mut self.earlier, probe as u32), first(&mut self.earlier, other));
            self.earlier[a.max(b) as usize] = a.min(b);
        }
    }

    /// Numbers the clusters by their first cores.
    pub fn finish(mut self) -> Clusters {
        let count = self.neighbors.len();
        let mut labels: Vec<Option<u32>> = vec![None; count];
        let mut clusters = 0;
        for probe in (0..count).filter(|&probe| self.is_core(probe)).collect::<Vec<_>>() {
            let leader = first(&mut self.earlier, probe as u32) as usize;
            if leader == probe {
                labels[probe] = Some(clusters);
                clusters += 1;
            } else {
                // The leader is earlier, and has its number.
                labels[probe] = labels[leader];
            }
        }
        for (border, neighbors) in &self.borders {
            let cores = neighbors.iter().filter(|other| self.is_core(**other as usize));
            labels[*border as usize] = cores.filter_map(|core| labels[*core as usize]).min();
        }
        Clusters { labels, neighbors: self.neighbors, count: clusters as usize }
    }
}

/// The earliest of a cluster; shortens the way there.
fn first(earlier: &mut [u32], mut one: u32) -> u32 {
    while earlier[one as usize] != one {
        let next = earlier[one as usize];
        earlier[one as usize] = earlier[next as usize];
        one = next;
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grown(min_points: usize, lists: &[Vec<u32>]) -> Clusters {
        let mut growing = Growing::new(lists.len(), min_points);
        for (probe, list) in lists.iter().enumerate() {
            growing.count(probe, list.len());
        }
        for (probe, list) in lists.iter().enumerate() {
            growing.join(probe, list);
        }
        growing.finish()
    }

    #[test]
    fn a_border_belongs_to_the_first_cluster_in_reach_and_the_lonely_to_none() {
        // 0-1-2 and 4-5-6 are heaps, 3 lies between 2 and 4, 7 alone.
        let lists = [
            vec![1, 2],
            vec![0, 2],
            vec![0, 1, 3],
            vec![2, 4],
            vec![3, 5, 6],
            vec![4, 6],
            vec![4, 5],
            vec![],
        ];
        let clusters = grown(4, &lists);
        assert_eq!(clusters.labels, [Some(0), Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), None]);
        assert_eq!(clusters.members()[1], [4, 5, 6]);
        assert_eq!(clusters.typical(&clusters.members()[0]), Some(2));
        // With three to a core, 3 is one and joins the heaps.
        assert_eq!(grown(3, &lists).count, 1);
    }

    /// DBSCAN as it is written down: cores in order, each new one expanded over cores, borders taken where they are reached first.
    fn plain(min_points: usize, lists: &[Vec<u32>]) -> Vec<Option<u32>> {
        let is_core = |one: usize| lists[one].len() + 1 >= min_points;
        let (mut labels, mut next) = (vec![None; lists.len()], 0);
        for start in 0..lists.len() {
            if labels[start].is_some() || !is_core(start) {
                continue;
            }
            let mut stack = vec![start];
            labels[start] = Some(next);
            while let Some(one) = stack.pop() {
                for other in lists[one].iter().map(|other| *other as usize) {
                    if labels[other].is_none() {
                        labels[other] = Some(next);
                        if is_core(other) {
                            stack.push(other);
                        }
                    }
                }
            }
            next += 1;
        }
        labels
    }

    proptest! {
        #[test]
        fn clusters_are_those_of_the_method_as_written_down(
            n in 1_usize..30, edges in prop::collection::vec((0_u32..30, 0_u32..30), 0..60), min_points in 1_usize..5,
        ) {
            let mut lists = vec![Vec::new(); n];
            for (a, b) in edges {
                if a != b && (a as usize) < n && (b as usize) < n && !lists[a as usize].contains(&b) {
                    lists[a as usize].push(b);
                    lists[b as usize].push(a);
                }
            }
            prop_assert_eq!(grown(min_points, &lists).labels, plain(min_points, &lists));
        }
    }
}
