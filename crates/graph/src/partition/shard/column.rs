//! Numbers in memory or in a file.

use std::ops::Deref;

use crate::dataset::view;
use crate::io::npy::{Array, Element};

/// Numbers, in memory or left in the file they came from.
pub(super) enum Column<T> {
    /// In memory.
    Owned(Vec<T>),
    /// A mapped array whose type and order were checked when it was opened.
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
