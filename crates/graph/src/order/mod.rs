//! Node orders: the vertex of each matrix row.
//!
//! Aggregation reads rows all over a matrix. It is faster if neighbours have nearby rows, which are then still in cache,
//! and does less work if the rows that no layer needs come last.
//!
//! - [`cluster()`]: an order with nearby neighbours; [`improves_locality()`]: whether it reduces cache misses;
//! - [`nested()`]: rows that a layer must compute before those that it need not.

mod cluster;
mod locality;
mod nested;

pub use cluster::cluster;
pub use locality::{improves_locality, too_small};
pub use nested::{Nested, nested};
pub(crate) use nested::{UNUSED, distances};

/// Returns whether `order` holds every number below its length once.
pub fn is_permutation(order: &[u32]) -> bool {
    let mut seen = vec![false; order.len()];
    order.iter().all(|&v| seen.get_mut(v as usize).is_some_and(|seen| !std::mem::replace(seen, true)))
}
