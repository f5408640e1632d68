//! What a rank loads and which stages it computes.

use halograph_comm::Message;
use halograph_graph::partition::assign::chunk_rows;
use halograph_graph::partition::{Shard, Subgraph};
use halograph_kernels::Real;
use halograph_nn::Model;
use halograph_nn::model::Spec;

use super::grid::{Grid, StageLayout};
use super::split::{split, stage_costs};
use crate::config::Config;
use crate::data::{Loading, RowChunks, Scaling, ShardData, StageRows};
use crate::error::Result;
use crate::tags::Setup;

/// Loads the shard of a way, in chunks; features only in the first stage group. `hops`: number of graph layers of the whole
/// model. Collective; blocks.
pub fn load<'s, T: Real>(
    shard: &'s Shard,
    grid: &Grid,
    config: &Config,
    scaling: Scaling,
    hops: usize,
) -> Result<ShardData<'s, T>> {
    let graphs = config.graphs();
    let count = config.chunks() / grid.ways;
    // Computed once per way.
    let own = match grid.is_first() {
        true => {
            let subgraph = if graphs.inductive { Subgraph::Train } else { Subgraph::All };
            Some(Message::of(&chunk_rows(shard, subgraph, count as u32)?))
        }
        false => None,
    };
    let numbers = grid.column.broadcast(Setup::Chunks.tag(), 0, own)?;
    let numbers = numbers.expect::<u32>(shard.owned())?.to_vec();
    let chunks = Some(RowChunks::new(shard, numbers, count, &grid.link.comm)?);
    let preprocessing = scaling.into();
    let loading = Loading { graphs, preprocessing, hops, chunks, has_features: grid.is_first() };
    ShardData::load_as(shard, &grid.link, loading)
}

/// Decides which stages of a model each of `groups` stage groups computes: the same on all ranks.
pub fn plan<T: Real>(model: &Model<T>, spec: &Spec, data: &ShardData<T>, groups: usize) -> StageLayout {
    let whole = &data.shard().partition().dataset;
    let sizes = spec.stage_sizes(whole.features as usize, whole.classes as usize);
    StageLayout {
        groups: split(&stage_costs(spec, whole), groups),
        widths: sizes.iter().map(|size| size.outputs).collect(),
        levels: data.levels(model),
        initial: sizes.iter().position(|size| size.is_initial),
    }
}

impl StageLayout {
    /// Returns the rows that each stage of this rank computes and reads. `model`: the stages of this rank.
    pub(super) fn rows<T: Real>(&self, model: &Model<T>) -> Vec<StageRows> {
        let rows = |index: usize| StageRows {
            to: self.levels[index],
            from: index.checked_sub(1).and_then(|before| self.levels[before]),
            reads_edges: model.stage(index).reads_edges(),
        };
        model.indices().map(rows).collect()
    }
}
