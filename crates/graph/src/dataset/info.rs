//! Info.
