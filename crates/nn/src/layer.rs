//! The contract of a layer: three steps forward and their three backwards.
//!
//! ```text
//! input (owned rows) ─ prepare ─▶ messages (owned rows) ─ aggregate over a Block ─▶ sums (destination rows)
//!                                    ┊ exchange: messages of halo rows ─ add_halo ─▶ sums ─ finish ─▶ output (destination rows)
//! ```
//!
//! A layer's input has been dropped out already; `prepare` and `finish` are row-wise; only `aggregate` reads edges. What travels between owners is the output of
//! `prepare`, computed by the owner of a row under the owner's dropout mask, so that nobody multiplies a row of
//! another by a weight. Owned rows are the source rows of the block, and its destinations are among them; rows of others
//! are its halo. In one process all rows are owned and nothing travels.
//!
//! Edges from owned rows are aggregated while halo rows travel; [`Layer::add_halo`] then adds those from halo rows. The
//! backwards run in opposite order: [`Layer::halo_backward`] first, so that gradients of halo rows travel back to their
//! owners while those of owned rows are made; owners add what comes back before `prepare_backward`.
//!
//! A layer holds parameters only. What a backward needs of its forward is in a cache, so that several blocks can be
//! under way at once.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::dropout::Mask;
use halograph_kernels::keyed::Key;
use serde::{Deserialize, Serialize};

use crate::input::Input;
use crate::matrix::Matrix;
use crate::param::Param;

/// Word that names the mask of a layer's input under the layer's key.
const INPUT: u64 = 0;
/// Word that names the mask of its attention.
const ATTENTION: u64 = 1;

/// What one forward and its backward through one layer are given beside their matrices.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a, T: Real> {
    /// Names the random masks: seed, epoch, batch and layer. `None`: evaluation, nothing is dropped.
    pub key: Option<Key>,
    /// Dataset vertex id of each owned row; `None`: the row number.
    pub ids: Option<&'a [u32]>,
    /// Owned rows of the first hidden representation, for layers that mix it in (GCNII).
    pub initial: Option<&'a Matrix<T>>,
    /// Whether anybody wants the gradient of the input; the first layer's is not needed.
    pub input_gradient: bool,
}

impl<'a, T: Real> Pass<'a, T> {
    /// A forward without dropout, all rows under their own numbers.
    pub fn evaluation() -> Self {
        Pass { key: None, ids: None, initial: None, input_gradient: true }
    }

    /// What of the input is dropped with probability `p`, if anything.
    pub fn mask(&self, p: f64) -> Option<Mask<'a>> {
        Mask::new(self.key?.with(INPUT), p, self.ids)
    }

    /// The key of attention masks, if anything is dropped with probability `p`.
    pub(crate) fn attention_key(&self, p: f64) -> Option<Key> {
        self.key.filter(|_| p > 0.0).map(|key| key.with(ATTENTION))
    }
}

/// Gradients that leave [`Layer::finish_backward`].
#[derive(Debug)]
pub struct FinishGrad<T: Real> {
    /// Of the aggregate: destination rows x message width (less the columns that aggregation uses up). `None`: neither a
    /// parameter below nor anybody else wants it, and the backward ends here.
    pub aggregated: Option<Arc<Matrix<T>>>,
    /// How much of it is the gradient of [`Pass::initial`] in its destination rows as well, if the layer read it.
    pub initial: Option<T>,
}

impl<T: Real> FinishGrad<T> {
    /// Returns the gradients of a layer that does not read [`Pass::initial`].
    pub fn new(aggregated: Option<Arc<Matrix<T>>>) -> Self {
        FinishGrad { aggregated, initial: None }
    }
}

/// A layer over a [`Block`].
pub trait Layer<T: Real> {
    /// What backwards need of their forwards.
    type Cache: Default + Send;

    /// Width of a message, 0 if nothing needs to travel.
    fn message_width(&self) -> usize;

    /// Whether messages are the input as it is and sums of them depend on no parameter: of an input that never changes,
    /// they need to be made only once.
    fn aggregates_input(&self) -> bool;

    /// Owned rows of the input, dropped out, to owned rows of messages.
    fn prepare(&self, input: Input<T>, pass: &Pass<T>, cache: &mut Self::Cache) -> Input<T>;

    /// Messages of owned rows to destination rows: all of their sums if the block has no halo, else what
    /// [`Layer::add_halo`] completes.
    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>>;

    /// Adds to `sums`, which [`Layer::aggregate`] gave, what messages of the block's halo rows bring.
    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>>;

    /// Aggregated destination rows to destination rows of the output. Of sums that were made once, more rows may come
    /// than the block has destinations: the first ones count.
    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// From the gradient of the output to that of the aggregate. Gradients of parameters above the aggregation are added
    /// to here or, if the block has a halo and the input wants a gradient, in [`Layer::aggregate_backward`]: gradients of
    /// halo rows travel meanwhile.
    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> FinishGrad<T>;

    /// From the gradient of the aggregate to that of the messages of halo rows. Comes before
    /// [`Layer::aggregate_backward`].
    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// From the gradient of the aggregate to that of the messages of owned rows, of edges from these alone; adds to the
    /// gradients of parameters that [`Layer::finish_backward`] left.
    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// From the gradient of owned rows of messages to that of the input, if the pass wants it; adds to the gradients
    /// of parameters.
    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Option<Matrix<T>>;

    /// All parameters.
    fn params(&self) -> Vec<&Param<T>>;

    /// All parameters.
    fn params_mut(&mut self) -> Vec<&mut Param<T>>;

    /// Returns the bias that is added to every row of the output, if the layer has one.
    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        None
    }

    /// Arrays of the state dict that are not trained.
    fn buffers(&self) -> Vec<&Param<T>> {
        Vec::new()
    }

    /// Arrays of the state dict that are not trained.
    fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
        Vec::new()
    }
}

/// On which side of the aggregation a linear layer multiplies by its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Project {
    /// Where rows are narrower; after it in a first layer without dropout, whose sums are then made only once.
    #[default]
    Auto,
    /// Before it: output rows are aggregated.
    First,
    /// After it: input rows are aggregated.
    Last,
}

impl Project {
    /// Whether rows of width `inputs` are projected to width `outputs` before they are aggregated.
    pub fn is_first(self, inputs: usize, outputs: usize) -> bool {
        match self {
            Project::Auto => outputs < inputs,
            Project::First => true,
            Project::Last => false,
        }
    }
}
