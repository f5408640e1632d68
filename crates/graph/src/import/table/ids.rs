//! The users' own node ids and their node numbers.

use std::collections::HashMap;

use super::Cell;
use crate::build::MAX_NODES;

/// Ids in the order of their nodes.
///
/// Most files number their nodes 0, 1, 2…, which needs no memory, or with other whole numbers, which needs a map of
/// integers. Other ids are stored as text.
pub(super) enum Ids {
    /// 0, 1, 2… so far.
    Sequence(u32),
    /// Whole numbers.
    Ints { order: Vec<i64>, index: HashMap<i64, u32> },
    /// Anything.
    Texts { order: Vec<String>, index: HashMap<String, u32> },
}

/// An id as it is looked up: `Int` exactly when its text is how that integer is written, so that an integer column
/// and a text column of the same numbers agree.
#[derive(Clone, Copy)]
enum Key<'a> {
    Int(i64),
    Text(&'a str),
}

impl<'a> Key<'a> {
    fn of(cell: Cell<'a>) -> Result<Key<'a>, String> {
        match cell {
            Cell::Int(id) => Ok(Key::Int(id)),
            Cell::Real(id) if id.fract() == 0.0 && id.abs() < 1e15 => Ok(Key::Int(id as i64)),
            Cell::Text(text) if text.contains(['\n', '\r']) => {
                Err(format!("id {cell} holds a line break, which ids.txt cannot store"))
            }
            Cell::Text(text) => Ok(canonical_int(text).map_or(Key::Text(text), Key::Int)),
            Cell::Null => Err("no id".into()),
            other => Err(format!("{other} is not an id")),
        }
    }
}

fn canonical_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = match digits.as_bytes() {
        [b'0'] => text == "0",
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    plain.then(|| text.parse().ok()).flatten()
}

impl Default for Ids {
    fn default() -> Self {
        Ids::Sequence(0)
    }
}

impl Ids {
    pub(super) fn len(&self) -> usize {
        match self {
            Ids::Sequence(n) => *n as usize,
            Ids::Ints { order, .. } => order.len(),
            Ids::Texts { order, .. } => order.len(),
        }
    }

    /// Adds the id of the next node; the error is its problem.
    pub(super) fn push(&mut self, cell: Cell) -> Result<(), String> {
        let node = self.len();
        if node >= MAX_NODES {
            return Err(format!("more than the {MAX_NODES} nodes that ids can number"));
        }
        let key = Key::of(cell)?;
        self.make_room_for(key);
        let before = match (self, key) {
            (Ids::Sequence(n), _) => {
                *n += 1;
                None
            }
            (Ids::Ints { order, index }, Key::Int(id)) => {
                order.push(id);
                index.insert(id, node as u32)
            }
            (Ids::Texts { order, index }, key) => {
                let text = key.text();
                order.push(text.clone());
                index.insert(text, node as u32)
            }
            (Ids::Ints { .. }, Key::Text(_)) => unreachable!("make_room_for turned integers into texts"),
        };
        before
            .map_or(Ok(()), |first| Err(format!("id {cell} is already that of node {first}, counted from 0")))
    }

    /// Changes to the next more general form if the current one cannot hold `key`.
    fn make_room_for(&mut self, key: Key) {
        if let (Ids::Sequence(n), key) = (&*self, key)
            && !matches!(key, Key::Int(id) if id == i64::from(*n))
        {
            let order: Vec<i64> = (0..i64::from(*n)).collect();
            let index = order.iter().map(|&id| (id, id as u32)).collect();
            *self = Ids::Ints { order, index };
        }
        if let (Ids::Ints { order, .. }, Key::Text(_)) = (&*self, key) {
            let order: Vec<String> = order.iter().map(i64::to_string).collect();
            let index = order.iter().cloned().zip(0..).collect();
            *self = Ids::Texts { order, index };
        }
    }

    /// Returns the node with this id; the error is the problem of the id.
    pub(super) fn find(&self, cell: Cell) -> Result<u32, String> {
        let found = match (self, Key::of(cell)?) {
            (Ids::Sequence(n), Key::Int(id)) => u32::try_from(id).ok().filter(|id| id < n),
            (Ids::Ints { index, .. }, Key::Int(id)) => index.get(&id).copied(),
            (Ids::Texts { index, .. }, Key::Text(text)) => index.get(text).copied(),
            (Ids::Texts { index, .. }, Key::Int(id)) => index.get(&id.to_string()).copied(),
            _ => None,
        };
        found.ok_or_else(|| format!("id {cell} is not in the node table"))
    }

    /// Returns the ids as text, unless they are 0, 1, 2….
    pub(super) fn names(&self) -> Option<Vec<String>> {
        match self {
            Ids::Sequence(_) => None,
            Ids::Ints { order, .. } => Some(order.iter().map(i64::to_string).collect()),
            Ids::Texts { order, .. } => Some(order.clone()),
        }
    }
}

impl Key<'_> {
    fn text(self) -> String {
        match self {
            Key::Int(id) => id.to_string(),
            Key::Text(text) => text.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(texts: &[&str]) -> Result<Ids, String> {
        let mut ids = Ids::default();
        texts.iter().try_for_each(|text| ids.push(Cell::Text(text)))?;
        Ok(ids)
    }

    #[test]
    fn a_sequence_needs_no_names() {
        let ids = ids(&["0", "1", "2"]).unwrap();
        assert!(ids.names().is_none());
        assert_eq!(ids.find(Cell::Int(2)), Ok(2));
        assert!(ids.find(Cell::Text("3")).is_err() && ids.find(Cell::Text("-1")).is_err());
        assert!(ids.find(Cell::Text("01")).is_err());
    }

    #[test]
    fn integers_and_text_mix() {
        let ids = ids(&["0", "1", "7", "007", "x"]).unwrap();
        assert_eq!(ids.names().unwrap(), ["0", "1", "7", "007", "x"]);
        assert_eq!(ids.find(Cell::Int(7)), Ok(2));
        assert_eq!(ids.find(Cell::Text("007")), Ok(3));
        assert_eq!(ids.find(Cell::Real(1.0)), Ok(1));
    }

    #[test]
    fn repeats_are_found_in_every_form() {
        for texts in [&["0", "1", "1"][..], &["5", "9", "5"], &["a", "b", "a"], &["0", "0"], &["3", "a", "3"]]
        {
            assert!(ids(texts).err().unwrap().contains("is already that of node"), "{texts:?}");
        }
    }

    #[test]
    fn ids_that_ids_txt_cannot_store_are_refused() {
        assert!(ids(&["a\nb"]).err().unwrap().contains("line break"));
        assert!(Ids::default().push(Cell::Null).is_err());
        assert!(Ids::default().push(Cell::Real(0.5)).is_err());
    }
}
