//! Rows on their way: made ready a little at a time, so that others are scanned meanwhile.

use std::any::Any;
use std::sync::Arc;

use super::{BackendError, Loaded};
use crate::domain::Kept;

/// Rows that are being made ready. Dropping it gives them up.
pub trait Loading {
    /// Goes on a little, for about a millisecond at most, or sees how far another thread is: what came of it, once, or `None` while
    /// there is more to do.
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>>;
}

/// The generation that is to be replaced, whose rows need not be brought again.
#[derive(Clone, Copy)]
pub struct Former<'a> {
    /// What the same backend loaded.
    pub rows: &'a dyn Loaded,
    /// The rows that the new generation has too, ascending and disjoint by where they stand in it.
    pub kept: &'a Arc<[Kept]>,
}

impl<'a> Former<'a> {
    /// The rows as the backend knows them that loaded them, and what is kept; `None` where another did.
    pub fn of<T: Loaded>(self) -> Option<(&'a T, &'a Arc<[Kept]>)> {
        let rows: &dyn Any = self.rows;
        Some((rows.downcast_ref()?, self.kept))
    }
}

/// Rows that are ready.
pub struct Ready(Option<Box<dyn Loaded>>);

impl Ready {
    /// These rows.
    pub fn new(rows: Box<dyn Loaded>) -> Self {
        Self(Some(rows))
    }
}

impl Loading for Ready {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        self.0.take().map(Ok)
    }
}
