//! k-medoids: partitioning around medoids (Kaufman and Rousseeuw 1990, PAM), BUILD and then SWAP, on the distance 1 less score.
//!
//! Deterministic: the first of equals is taken, and sums run in the order of the embeddings.

use crate::quality::pairs::Pairs;

/// An exchange must lower the sum of distances by more than this, so that rounding cannot make two turn in circles.
const LEAST_GAIN: f64 = 1e-9;

/// Exchanges are few; no more than this are made.
const MOST_SWAPS: usize = 1000;

/// `k` medoids, or all embeddings where there are fewer: those with most of the embeddings around them first.
pub fn medoids(pairs: &Pairs, k: usize) -> Vec<usize> {
    let mut chosen = build(pairs, k.min(pairs.len()));
    for _ in 0..MOST_SWAPS {
        let Some((at, one)) = best_swap(pairs, &chosen) else { break };
        chosen[at] = one;
    }
    let mut sizes = vec![0_usize; chosen.len()];
    for embedding in 0..pairs.len() {
        if let Some(at) = nearest(pairs, &chosen, embedding) {
            sizes[at] += 1;
        }
    }
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    order.sort_by_key(|&at| (usize::MAX - sizes[at], chosen[at]));
    order.into_iter().map(|at| chosen[at]).collect()
}

/// Takes, one after the other, whatever lowers the sum of distances to the nearest most.
fn build(pairs: &Pairs, k: usize) -> Vec<usize> {
    let n = pairs.len();
    let mut chosen: Vec<usize> = Vec::with_capacity(k);
    let mut to_nearest = vec![f64::INFINITY; n];
    while chosen.len() < k {
        let cost = |one: usize| -> f64 { (0..n).map(|j| to_nearest[j].min(pairs.distance(one, j))).sum() };
        let free = (0..n).filter(|one| !chosen.contains(one));
        let costs: Vec<(usize, f64)> = free.map(|one| (one, cost(one))).collect();
        let Some(&(one, _)) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        for (j, to_nearest) in to_nearest.iter_mut().enumerate() {
            *to_nearest = to_nearest.min(pairs.distance(one, j));
        }
        chosen.push(one);
    }
    chosen
}

/// The place among the chosen, and what to put there, by which the sum falls most.
fn best_swap(pairs: &Pairs, chosen: &[usize]) -> Option<(usize, usize)> {
    let n = pairs.len();
    let sum = |distances: &mut dyn Iterator<Item = f64>| -> f64 { distances.sum() };
    let without = |at: Option<usize>| -> Vec<f64> {
        let others = || chosen.iter().enumerate().filter(|(place, _)| Some(*place) != at);
        (0..n)
            .map(|j| others().map(|(_, &one)| pairs.distance(one, j)).fold(f64::INFINITY, f64::min))
            .collect()
    };
    let mut best = (sum(&mut without(None).into_iter()) - LEAST_GAIN, None);
    for at in 0..chosen.len() {
        let left = without(Some(at));
        for one in (0..n).filter(|one| !chosen.contains(one)) {
            let cost = sum(&mut (0..n).map(|j| left[j].min(pairs.distance(one, j))));
            if cost < best.0 {
                best = (cost, Some((at, one)));
            }
        }
    }
    best.1
}

fn nearest(pairs: &Pairs, chosen: &[usize], embedding: usize) -> Option<usize> {
    let distance = |at: &usize| pairs.distance(chosen[*at], embedding);
    (0..chosen.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Matrix;

    /// Points on a circle, by their angles.
    fn pairs(angles: &[f32]) -> Pairs {
        let rows: Vec<[f32; 2]> = angles.iter().map(|angle| [angle.cos(), angle.sin()]).collect();
        let matrix = Matrix::from_rows(2, rows.iter().map(<[f32; 2]>::as_slice));
        Pairs::of(&matrix, &(0..angles.len()).collect::<Vec<_>>())
    }

    #[test]
    fn each_heap_has_its_middle_and_the_largest_comes_first() {
        let pairs = pairs(&[1.5, 0.0, 0.1, 0.2, 0.3, 0.4, 1.6, 1.7]);
        assert_eq!(medoids(&pairs, 2), [3, 6]);
        assert_eq!(medoids(&pairs, 1), [5]);
        assert_eq!(medoids(&pairs, 0), [0; 0]);
    }

    #[test]
    fn more_medoids_than_embeddings_are_all_of_them() {
        let mut all = medoids(&pairs(&[0.0, 0.5, 1.0]), 5);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }

    /// The least sum over all choices of three: small enough to try them all.
    #[test]
    fn swaps_reach_the_optimum_of_a_small_set() {
        let angles = [0.0, 0.02, 0.3, 0.31, 0.35, 0.9, 0.91, 1.4, 1.45, 1.46];
        let pairs = pairs(&angles);
        let cost = |chosen: &[usize]| -> f64 {
            let nearest = |j: usize| chosen.iter().map(|&one| pairs.distance(one, j)).fold(9.0, f64::min);
            (0..angles.len()).map(nearest).sum()
        };
        let least = (0..10)
            .flat_map(|a| (a + 1..10).flat_map(move |b| (b + 1..10).map(move |c| [a, b, c])))
            .map(|chosen| cost(&chosen))
            .fold(9.0, f64::min);
        assert!(cost(&medoids(&pairs, 3)) <= least + 1e-12);
    }
}
