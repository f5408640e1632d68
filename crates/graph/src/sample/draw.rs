//! Draws the in-neighbours of one destination.

use halograph_kernels::keyed::Key;

use super::neighbors::Neighbors;
use super::{DrawnEdges, Fanout, SamplerKind};

/// Draws neighbours of the destinations of one hop; its memory is reused.
#[derive(Debug)]
pub(super) struct Draw {
    kind: SamplerKind,
    key: Key,
    fanout: Fanout,
    /// Positions drawn of a list.
    chosen: Vec<u32>,
    /// The same as a set, for drawing without replacement.
    taken: Vec<u64>,
    /// Variates of a destination's neighbours, with their positions (LABOR).
    candidates: Vec<(u32, u32)>,
    /// Variates of all rows, if that is less work than one for each neighbour of each destination (LABOR).
    variates: Vec<u32>,
}

impl Default for Draw {
    fn default() -> Self {
        Draw {
            kind: SamplerKind::Neighbor,
            key: Key::new(0, "sample"),
            fanout: Fanout::All,
            chosen: Vec::new(),
            taken: Vec::new(),
            candidates: Vec::new(),
            variates: Vec::new(),
        }
    }
}

impl Draw {
    /// Starts a hop, whose stream is `key`, into the rows `destinations`.
    pub(super) fn start(
        &mut self,
        neighbors: &Neighbors,
        kind: SamplerKind,
        key: Key,
        fanout: Fanout,
        destinations: &[u32],
    ) {
        (self.kind, self.key, self.fanout) = (kind, key, fanout);
        self.variates.clear();
        if kind == SamplerKind::Labor && matches!(fanout, Fanout::AtMost(_)) {
            let nodes = neighbors.nodes();
            let visited: usize = destinations.iter().map(|&row| neighbors.degree(row)).sum();
            if visited > nodes {
                self.variates.extend((0..nodes as u32).map(|row| variate(key, neighbors.id(row))));
            }
        }
    }

    /// Appends the edges from the drawn in-neighbours of `row`, other than itself, to `out`, by ascending dataset id.
    #[inline]
    pub(super) fn neighbors(&mut self, neighbors: &Neighbors, row: u32, out: &mut DrawnEdges) {
        let (list, degree) = (neighbors.list(row), neighbors.degree(row));
        let count = self.fanout.of(degree);
        let own = neighbors.loop_position(row).unwrap_or(usize::MAX);
        let weights = neighbors.weights(row);
        if count == degree {
            let (before, after) = (own.min(list.len()), own.saturating_add(1).min(list.len()));
            out.sources.extend_from_slice(&list[..before]);
            out.sources.extend_from_slice(&list[after..]);
            if let Some(weights) = weights {
                out.weights.extend_from_slice(&weights[..before]);
                out.weights.extend_from_slice(&weights[after..]);
            }
            return;
        }
        self.chosen.clear();
        match self.kind {
            SamplerKind::Neighbor => self.positions(self.key.with(neighbors.id(row) as u64), degree, count),
            SamplerKind::Labor => self.smallest(neighbors, list, own, count),
        }
        self.chosen.sort_unstable();
        let place = |&at: &u32| at as usize + (at as usize >= own) as usize;
        out.sources.extend(self.chosen.iter().map(|at| list[place(at)]));
        if let Some(weights) = weights {
            out.weights.extend(self.chosen.iter().map(|at| weights[place(at)]));
        }
    }

    /// Draws `count` of `0..degree` without replacement, by Floyd's algorithm: work does not grow with the degree.
    pub(super) fn positions(&mut self, key: Key, degree: usize, count: usize) {
        let words = degree.div_ceil(64);
        if self.taken.len() < words {
            self.taken.resize(words, 0);
        }
        for last in degree - count..degree {
            let at = key.below(last as u64, last as u64 + 1) as usize;
            let is_taken = self.taken[at / 64] >> (at % 64) & 1 == 1;
            let at = if is_taken { last } else { at };
            self.taken[at / 64] |= 1 << (at % 64);
            self.chosen.push(at as u32);
        }
        self.chosen.iter().for_each(|&at| self.taken[at as usize / 64] = 0);
    }

    #[cfg(test)]
    pub(super) fn chosen(&self) -> &[u32] {
        &self.chosen
    }

    /// Chooses the positions of the `count` smallest variates of a list, of which `own` is left out.
    fn smallest(&mut self, neighbors: &Neighbors, list: &[u32], own: usize, count: usize) {
        let degree = list.len() - (own != usize::MAX) as usize;
        // Variates below this bound are almost surely enough, and hardly more than needed.
        let enough = count as f64 + 4.0 * (count as f64).sqrt() + 4.0;
        let bound = (enough / degree as f64 * 2f64.powi(32)).min(u32::MAX as f64) as u32;
        self.collect(neighbors, list, own, bound);
        if self.candidates.len() < count {
            self.collect(neighbors, list, own, u32::MAX);
        }
        // Equal variates: the smaller id.
        self.candidates.select_nth_unstable(count - 1);
        self.chosen.extend(self.candidates[..count].iter().map(|&(_, at)| at));
    }

    /// Collects the neighbours with variates up to `bound`.
    fn collect(&mut self, neighbors: &Neighbors, list: &[u32], own: usize, bound: u32) {
        self.candidates.clear();
        let (key, variates) = (self.key, &self.variates);
        for (at, &row) in list.iter().enumerate().filter(|(at, _)| *at != own) {
            let variate = match variates.is_empty() {
                true => variate(key, neighbors.id(row)),
                false => variates[row as usize],
            };
            if variate <= bound {
                self.candidates.push((variate, (at - (at > own) as usize) as u32));
            }
        }
    }
}

/// Returns the random variate of a source in a hop.
#[inline]
fn variate(key: Key, id: u32) -> u32 {
    (key.at(id as u64) >> 32) as u32
}
