//! The measurement on PoCL.
