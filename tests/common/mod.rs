//! What several integration tests need.

use std::path::PathBuf;

/// A file of the real test data that lies in `shared/data` beside the checkout.
///
/// # Panics
/// If it is not there: a test without its data has tested nothing.
pub(crate) fn shared(path: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(path);
    assert!(
        file.exists(),
        "{} is missing: the tests want the shared data beside the checkout",
        file.display()
    );
    file
}
