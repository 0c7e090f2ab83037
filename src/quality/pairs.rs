//! Scores among the embeddings of one identity. Most identities are small, so these are computed one by one, by the function that says what a
//! canonical score is, instead of by scans of the whole gallery.

use crate::domain::{Matrix, Scorer};

/// Canonical scores of `n` embeddings with each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    n: usize,
    /// Row-major `n x n`; symmetric.
    scores: Vec<f32>,
}

impl Pairs {
    /// Of these rows of a matrix.
    pub fn of(matrix: &Matrix, rows: &[usize]) -> Self {
        let n = rows.len();
        let (mut scores, mut scorer) = (vec![0.0; n * n], Scorer::default());
        for (i, &row) in rows.iter().enumerate() {
            scorer.take(matrix.row(row));
            for (j, &other) in rows.iter().enumerate().skip(i) {
                let score = scorer.score(matrix.row(other));
                scores[i * n + j] = score;
                scores[j * n + i] = score;
            }
        }
        Self { n, scores }
    }

    /// How many embeddings.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The score of two.
    pub fn score(&self, i: usize, j: usize) -> f32 {
        self.scores[i * self.n + j]
    }

    /// How unlike two are: 1 less their score; an embedding is not unlike itself.
    pub fn distance(&self, i: usize, j: usize) -> f64 {
        if i == j { 0.0 } else { 1.0 - f64::from(self.score(i, j)) }
    }
}
