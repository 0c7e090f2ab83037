//! One identity that may be two persons: its prototypes fall apart into groups that no chain of scores at or above the threshold connects.

use rayon::prelude::*;
use serde::Serialize;

use crate::gallery::Snapshot;
use crate::quality::pairs::Pairs;
use crate::recognize::decision::Cut;

/// Most prototypes of one identity that are compared with each other; of more, so many are taken evenly.
const MOST_COMPARED: usize = 4096;

/// Least prototypes of a group: a single one is an outlier instead.
const LEAST_OF_GROUP: usize = 2;

/// An identity that may be several persons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Merged {
    /// The person.
    pub identity: String,
    /// Prototype ids of each group, the largest first.
    pub groups: Vec<Vec<String>>,
    /// The best score between the two largest groups.
    pub between: f32,
}

/// Identities of at least two groups of two, those furthest apart first.
pub fn merged(snapshot: &Snapshot, cut: impl Fn(usize) -> Cut + Sync) -> Vec<Merged> {
    let places = (0..snapshot.identity_count()).into_par_iter();
    let mut found: Vec<Merged> =
        places.filter_map(|place| fallen_apart(snapshot, place, cut(place).threshold.get())).collect();
    found.sort_by(|a, b| a.between.total_cmp(&b.between).then_with(|| a.identity.cmp(&b.identity)));
    found
}

fn fallen_apart(snapshot: &Snapshot, place: usize, threshold: f32) -> Option<Merged> {
    let all = snapshot.rows_of(place);
    let count = all.len().min(MOST_COMPARED);
    if count < 2 * LEAST_OF_GROUP {
        return None;
    }
    let rows: Vec<usize> = (0..count).map(|i| all.start + i * all.len() / count).collect();
    let pairs = Pairs::of(snapshot.matrix(), &rows);
    let mut groups = connected(&pairs, threshold);
    groups.retain(|group| group.len() >= LEAST_OF_GROUP);
    groups.sort_by_key(|group| (usize::MAX - group.len(), group[0]));
    let [first, second, ..] = groups.as_slice() else { return None };
    let between = first.iter().flat_map(|&i| second.iter().map(move |&j| (i, j)));
    let between = between.map(|(i, j)| pairs.score(i, j)).fold(f32::NEG_INFINITY, f32::max);
    let id = |i: &usize| snapshot.row(rows[*i]).prototype_id.read();
    Some(Merged {
        identity: snapshot.identity(place).name.read(),
        groups: groups.iter().map(|group| group.iter().map(id).collect()).collect(),
        between,
    })
}

/// Groups that chains of scores at or above the threshold connect, each ascending.
fn connected(pairs: &Pairs, threshold: f32) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..pairs.len()).collect();
    let mut groups = Vec::new();
    while let Some(start) = left.first().copied() {
        left.remove(0);
        let mut group = vec![start];
        let mut next = 0;
        while next < group.len() {
            let one = group[next];
            next += 1;
            left.retain(|&other| {
                let near = pairs.score(one, other) >= threshold;
                if near {
                    group.push(other);
                }
                !near
            });
        }
        group.sort_unstable();
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Matrix;

    #[test]
    fn chains_connect_what_is_far_apart() {
        let angles = [0.0_f32, 1.5, 0.2, 0.4, 1.6, 3.0];
        let rows: Vec<[f32; 2]> = angles.iter().map(|angle| [angle.cos(), angle.sin()]).collect();
        let matrix = Matrix::from_rows(2, rows.iter().map(<[f32; 2]>::as_slice));
        let pairs = Pairs::of(&matrix, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(connected(&pairs, 0.21_f32.cos()), [vec![0, 2, 3], vec![1, 4], vec![5]]);
    }
}
