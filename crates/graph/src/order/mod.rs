//! Node orders: which vertex stands in which row.
//!
//! A sum over neighbours reads rows all over a matrix. It is faster if neighbours stand near each other, so that rows
//! are still in cache when they are needed again, and does less if the rows nobody needs come last.
//!
//! - [`cluster()`]: neighbours near each other; [`pays()`]: whether that is worth while;
//! - [`nested()`]: rows that a layer must compute before those it need not.

mod cluster;
mod nested;
mod pays;

pub use cluster::cluster;
pub use nested::{Nested, nested};
pub(crate) use nested::{UNUSED, distances};
pub use pays::{pays, too_small};

/// Whether `order` holds every number below its length once.
pub fn is_permutation(order: &[u32]) -> bool {
    let mut seen = vec![false; order.len()];
    order.iter().all(|&v| seen.get_mut(v as usize).is_some_and(|seen| !std::mem::replace(seen, true)))
}
