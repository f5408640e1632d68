//! Shards cut from an open dataset.

use rayon::prelude::*;

use halograph_kernels::sparse::Pattern;

use super::column::Column;
use super::{Shard, ShardWeights};
use crate::block::{InWeight, ROWS, rows_mut, weights_of};
use crate::error::{Error, Result};
use crate::partition::layout::Layout;

impl Layout<'_> {
    /// Creates the shard of part `part`. Features and labels stay in the dataset.
    pub fn cut(&self, part: u32) -> Result<Shard> {
        if part >= self.partition.parts {
            let problem = format!("part {part} where parts are numbered 0 to {}", self.partition.parts - 1);
            return Err(Error::input("shard", problem));
        }
        let owned = self.owned(part);
        let (indptr, mut indices) = self.edges_of(owned);
        let halo = self.renumber(part, &indptr, &mut indices);
        let before = |&start: &usize| halo.partition_point(|&at| (at as usize) < start) as u64;
        let halo_starts = self.starts.iter().map(before).collect();
        let home = |&at: &u32| self.home(self.order[at as usize]).1 as u32;
        let homes = halo.iter().map(home).collect();
        let outside = halo.iter().map(|&at| self.order[at as usize]);
        let ids: Vec<u32> = owned.iter().copied().chain(outside).collect();
        let split = self.dataset.split();
        let weights = self.weights_of(owned, &ids, &indptr, &indices);
        Ok(Shard {
            weights,
            part,
            partition: self.partition.clone(),
            indptr: Column::Owned(indptr),
            indices: Column::Owned(indices),
            split: Column::Owned(ids.iter().map(|&v| split[v as usize]).collect()),
            degrees: Column::Owned(
                self.degrees.iter().flat_map(|of| ids.iter().map(|&v| of[v as usize])).collect(),
            ),
            distance: Column::Owned(ids.iter().map(|&v| self.distance[v as usize]).collect()),
            halo: Column::Owned(halo_starts),
            homes: Column::Owned(homes),
            features: self.dataset.features().clone(),
            labels: self.dataset.label_array().clone(),
            stored: Some(owned.to_vec()),
            ids: Column::Owned(ids),
        })
    }

    /// Returns the weights of the in-edges of `owned`, whose sources are rows of `ids`.
    fn weights_of(
        &self,
        owned: &[u32],
        ids: &[u32],
        indptr: &[u64],
        indices: &[u32],
    ) -> Option<ShardWeights> {
        let (all, sums) = (self.dataset.edge_weights()?, self.in_weights.as_ref()?);
        let pattern = Pattern::new(indptr, indices);
        let graph = self.dataset.graph();
        let edges = weights_of(pattern, graph, all, |r| owned[r], |column| ids[column as usize]);
        let sums: Vec<InWeight> = sums.iter().flat_map(|of| ids.iter().map(|&v| of[v as usize])).collect();
        let sums = bytemuck::cast_slice::<InWeight, f64>(&sums).to_vec();
        Some(ShardWeights { edges: Column::Owned(edges), sums: Column::Owned(sums) })
    }

    /// Returns the in-edges of `owned`: row starts and places of the sources.
    fn edges_of(&self, owned: &[u32]) -> (Vec<u64>, Vec<u32>) {
        let graph = self.dataset.graph();
        let mut indptr = Vec::with_capacity(owned.len() + 1);
        indptr.push(0);
        let mut end = 0;
        indptr.extend(owned.iter().map(|&v| {
            end += graph.degree(v as usize);
            end
        }));
        let mut places = vec![0u32; end as usize];
        owned.par_chunks(ROWS).zip(rows_mut(&indptr, &mut places)).for_each(|(vertices, run)| {
            let sources = vertices.iter().flat_map(|&v| graph.row(v as usize));
            run.iter_mut().zip(sources).for_each(|(to, &u)| *to = self.place[u as usize]);
        });
        (indptr, places)
    }

    /// Turns the places in `indices` into rows of `part`, ascending in each row; returns the places of the halo.
    fn renumber(&self, part: u32, indptr: &[u64], indices: &mut [u32]) -> Vec<u32> {
        let own = self.starts[part as usize] as u32..self.starts[part as usize + 1] as u32;
        let mut halo: Vec<u32> = indices.par_iter().copied().filter(|at| !own.contains(at)).collect();
        halo.par_sort_unstable();
        halo.dedup();
        let row = |at: u32| {
            if own.contains(&at) {
                return at - own.start;
            }
            let position = halo.binary_search(&at).expect("the halo contains every place that is not owned");
            own.len() as u32 + position as u32
        };
        rows_mut(indptr, indices).into_par_iter().enumerate().for_each(|(run, mut rest)| {
            for ends in indptr[run * ROWS..].windows(2).take(ROWS) {
                let (columns, after) = rest.split_at_mut((ends[1] - ends[0]) as usize);
                columns.iter_mut().for_each(|at| *at = row(*at));
                columns.sort_unstable();
                rest = after;
            }
        });
        halo
    }
}
