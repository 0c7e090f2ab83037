//! Galleries asked once what callers will ask, so that none of them waits for a compiler.

use std::sync::Arc;

use super::identities::rows_for;
use crate::backend::RowSet;
use crate::domain::Matrix;
use crate::engine::{Engine, ScanRequest};
use crate::gallery::Snapshot;

/// Probes of the requests that are tried: alone, some, and as many as make a wide device scan in tiles.
const TRIED: [usize; 3] = [1, 8, 64];

/// Makes the scans of `Recognize` on a generation that an engine holds, where that engine is to serve and compiles what it scans with.
/// Blocks.
pub fn rehearse(engine: &Engine, snapshot: &Arc<Snapshot>) {
    if !engine.compiles() || snapshot.is_empty() {
        return;
    }
    let k = rows_for(snapshot, 2.min(snapshot.identity_count()), 0).min(snapshot.row_count());
    for count in TRIED {
        let matrix = snapshot.matrix();
        let rows = (0..count).map(|place| matrix.row(place % matrix.rows()));
        let request = ScanRequest {
            snapshot: Arc::clone(snapshot),
            probes: Arc::new(Matrix::from_rows(matrix.dim(), rows)),
            skips: vec![RowSet::default(); count],
            k,
        };
        // What fails here fails for callers too, who are told; it keeps nobody from being served.
        if let Err(error) = engine.scan_blocking(request) {
            tracing::warn!(gallery = snapshot.profile().name, probes = count, %error, "a scan failed when it was tried");
        }
    }
}
