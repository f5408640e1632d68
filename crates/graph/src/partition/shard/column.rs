//! Arrays in memory or in a mapped file.

use std::ops::Deref;

use crate::dataset::view;
use crate::io::npy::{Array, Element};

/// An array in memory or in a mapped file.
pub(super) enum Column<T> {
    /// In memory.
    Owned(Vec<T>),
    /// A mapped array of type `T`, checked when it was opened.
    Mapped(Array),
}

impl<T: Element> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Column::Owned(values) => values,
            Column::Mapped(array) => view(array),
        }
    }
}
