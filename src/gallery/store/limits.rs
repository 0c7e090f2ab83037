//! Setting a gallery's own threshold and least margin.

use rusqlite::{TransactionBehavior, named_params};

use super::import::set_counters;
use super::{GalleryKey, Store, StoreError, require_gallery};
use crate::domain::{Margin, Threshold};

impl Store {
    /// Gives a gallery a threshold and a least margin of its own, as one change; answers its generation now.
    pub fn set_limits(
        &mut self,
        gallery: &str,
        threshold: Threshold,
        min_margin: Margin,
    ) -> Result<u64, StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let key = require_gallery(&transaction, gallery)?;
        transaction.execute(
            "UPDATE galleries SET threshold = :threshold, min_margin = :min_margin WHERE id = :id",
            named_params! {
                ":threshold": threshold.get(),
                ":min_margin": min_margin.get(),
                ":id": key.number,
            },
        )?;
        let generation = key.generation + 1;
        set_counters(&transaction, GalleryKey { generation, ..key })?;
        transaction.commit()?;
        Ok(generation)
    }
}
