//! Feature columns of one dataset in the order of another.

use std::collections::HashMap;
use std::sync::Arc;

use super::features::Scaling;

/// Names that an error lists.
const LISTED: usize = 8;

/// How stored features become input of a model: which columns, in which order, and how they are scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// The stored column of each input; `None`: all columns as they are stored.
    pub columns: Option<Arc<[u32]>>,
    /// The scaling of the inputs.
    pub scaling: Scaling,
}

impl From<Scaling> for Preprocessing {
    fn from(scaling: Scaling) -> Self {
        Preprocessing { columns: None, scaling }
    }
}

/// Returns for each name of `own` its position in `other`; `None` if the names are equal and in the same order. The error
/// says which names differ.
pub(crate) fn column_order(own: &[String], other: &[String]) -> Result<Option<Arc<[u32]>>, String> {
    if own == other {
        return Ok(None);
    }
    for names in [own, other] {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("several feature columns are called {:?}", twice[0]));
        }
    }
    let places: HashMap<&String, u32> = other.iter().zip(0..).collect();
    let order: Option<Arc<[u32]>> = own.iter().map(|name| places.get(name).copied()).collect();
    match order.filter(|order| order.len() == other.len()) {
        Some(order) => Ok(Some(order)),
        None => Err(difference(own, other)),
    }
}

fn difference(own: &[String], other: &[String]) -> String {
    let of = |names: &[String], without: &[String]| {
        let without: std::collections::HashSet<&String> = without.iter().collect();
        names.iter().filter(|name| !without.contains(name)).cloned().collect::<Vec<_>>()
    };
    let (missing, extra) = (of(own, other), of(other, own));
    let parts = [("missing", missing), ("not in the run", extra)];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    parts.map(|(what, names)| format!("{what}: {}", listing(names))).collect::<Vec<_>>().join("; ")
}

fn listing(names: &[String]) -> String {
    let shown = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(own: &[&str], other: &[&str]) -> Result<Option<Vec<u32>>, String> {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        Ok(column_order(&names(own), &names(other))?.map(|order| order.to_vec()))
    }

    #[test]
    fn columns_are_found_by_name() {
        assert_eq!(order(&["a", "b"], &["a", "b"]), Ok(None));
        assert_eq!(order(&["a", "b", "c"], &["c", "a", "b"]), Ok(Some(vec![1, 2, 0])));
        // The same names twice each, in the same order, need no search.
        assert_eq!(order(&["a", "a"], &["a", "a"]), Ok(None));
    }

    #[test]
    fn other_columns_are_named() {
        let error = order(&["age", "sum"], &["sum", "region", "age"]).unwrap_err();
        assert_eq!(error, "not in the run: region");
        let error = order(&["age", "sum"], &["sum", "years"]).unwrap_err();
        assert_eq!(error, "missing: age; not in the run: years");
        let error = order(&["a", "b"], &["a", "a"]).unwrap_err();
        assert_eq!(error, "several feature columns are called \"a\"");
        let many: Vec<String> = (0..10).map(|k| format!("x{k}")).collect();
        assert!(column_order(&many, &[]).unwrap_err().ends_with("x7 and 2 more"));
    }
}
