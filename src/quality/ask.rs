//! Questions to the recogniser and the engine, as many probes at a time as suits them, with word of how far they have come.

use std::sync::Arc;

use crate::backend::RowSet;
use crate::domain::{Embedding, Margin, Matrix, NormPolicy, Threshold};
use crate::engine::{EngineError, Ranked, ScanRequest};
use crate::gallery::Snapshot;
use crate::recognize::decision::Cut;
use crate::recognize::{Exclusions, Probe, Recognition, RecognizeQuery, Recognizer};

/// Probes of one question; between two of them progress is told.
const PROBES_A_QUESTION: usize = 1024;

/// Is told now and then how many probes are done, and of how many.
pub type OnDone<'a> = &'a mut dyn FnMut(usize, usize);

/// Who answers, about which gallery, under which threshold and margin.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Who answers.
    pub recognizer: &'a Recognizer,
    /// The gallery that is asked.
    pub snapshot: &'a Arc<Snapshot>,
    /// The threshold that goes over those of identities, gallery and configuration.
    pub threshold: Option<Threshold>,
    /// The least margin that does.
    pub min_margin: Option<Margin>,
    /// One photo, one person: probes of one group compete for an identity, so all are asked about in one question.
    pub unique_in_group: bool,
}

impl Asking<'_> {
    /// What applies to a probe whose best identity stands at this place.
    pub fn cut(&self, best: usize) -> Cut {
        self.recognizer.cut(self.snapshot, Some(best), (self.threshold, self.min_margin))
    }

    /// Who probes `0..count` are, with at most so many candidates each.
    pub async fn recognize(
        &self,
        count: usize,
        probe: impl Fn(usize) -> Probe,
        max_candidates: usize,
        on_done: OnDone<'_>,
    ) -> Result<Vec<Recognition>, EngineError> {
        let together = if self.unique_in_group { count } else { PROBES_A_QUESTION };
        let mut recognitions = Vec::with_capacity(count);
        while recognitions.len() < count {
            on_done(recognitions.len(), count);
            let end = count.min(recognitions.len() + together);
            let query = RecognizeQuery {
                snapshot: Arc::clone(self.snapshot),
                probes: (recognitions.len()..end).map(&probe).collect(),
                threshold: self.threshold,
                min_margin: self.min_margin,
                max_candidates,
                unique_in_group: self.unique_in_group,
            };
            recognitions.extend(self.recognizer.recognize(query).await?.recognitions);
        }
        on_done(count, count);
        Ok(recognitions)
    }

    /// The first `k` rows of the total order for probes `0..count`, each a vector and the rows that it leaves out.
    pub async fn search<'v>(
        &self,
        count: usize,
        probe: impl Fn(usize) -> (&'v [f32], RowSet),
        k: usize,
        on_done: OnDone<'_>,
    ) -> Result<Vec<Vec<Ranked>>, EngineError> {
        let mut found = Vec::with_capacity(count);
        while found.len() < count {
            on_done(found.len(), count);
            let end = count.min(found.len() + PROBES_A_QUESTION);
            let (vectors, skips): (Vec<_>, Vec<_>) = (found.len()..end).map(&probe).unzip();
            let request = ScanRequest {
                probes: Arc::new(Matrix::from_rows(self.snapshot.profile().dim, vectors)),
                skips,
                k: k.min(self.snapshot.row_count()),
                snapshot: Arc::clone(self.snapshot),
            };
            found.extend(self.recognizer.engine().scan(request).await?.probes);
        }
        on_done(count, count);
        Ok(found)
    }
}

/// A stored row as a probe that leaves out `exclude`.
///
/// # Panics
/// Never: what is stored is an embedding.
pub fn row_as_probe(snapshot: &Snapshot, row: usize, exclude: Exclusions) -> Probe {
    let values = snapshot.matrix().row(row).to_vec();
    let dim = values.len();
    let embedding =
        Embedding::parse(values, dim, NormPolicy::Normalise).expect("what is stored is an embedding");
    Probe { embedding, group: String::new(), exclude }
}
