//! The contract of a layer: three forward steps and their backward steps.
//!
//! ```text
//! input (owned rows) ─ prepare ─▶ messages (owned rows) ─ aggregate over a Block ─▶ sums (destination rows)
//!                                    ┊ exchange: messages of halo rows ─ add_halo ─▶ sums ─ finish ─▶ output (destination rows)
//! ```
//!
//! Dropout is applied to the input before the layer gets it. `prepare` and `finish` are row-wise; only `aggregate` reads
//! edges. Ranks exchange the output of `prepare`: the owner of a row computes it, with its own dropout mask, so that no
//! rank multiplies a remote row by a weight. Owned rows are the source rows of the block, and its destinations are among
//! them; remote rows are its halo. In one process, all rows are owned and nothing is exchanged.
//!
//! Edges from owned rows are aggregated while halo rows are in flight; [`Layer::add_halo`] then adds the messages of halo
//! rows. The backward steps run in the opposite order. [`Layer::halo_backward`] comes first, so that gradients of halo
//! rows are sent to their owners while those of owned rows are computed. Owners add the received gradients before
//! `prepare_backward`.
//!
//! A layer holds parameters only. Values that a backward step needs from the forward are in a cache, so that several
//! blocks can be in progress at once.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::dropout::Mask;
use halograph_kernels::keyed::Key;
use serde::{Deserialize, Serialize};

use crate::input::Input;
use crate::matrix::Matrix;
use crate::param::Param;

/// Word that derives the key of the input's dropout mask from the layer's key.
const INPUT: u64 = 0;
/// Word that derives the key of the attention's dropout mask.
const ATTENTION: u64 = 1;

/// Arguments of a forward through a layer and of its backward, besides matrices.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a, T: Real> {
    /// Key of the dropout masks: seed, epoch, batch and layer. `None`: evaluation, without dropout.
    pub key: Option<Key>,
    /// Dataset vertex id of each owned row; `None`: the row number.
    pub ids: Option<&'a [u32]>,
    /// Owned rows of the first hidden representation, for layers that mix it in (GCNII).
    pub initial: Option<&'a Matrix<T>>,
    /// Whether the gradient of the input is needed; that of the first layer is not.
    pub input_gradient: bool,
}

impl<'a, T: Real> Pass<'a, T> {
    /// Returns the dropout mask of the input for probability `p`; `None` if nothing is dropped.
    pub fn mask(&self, p: f64) -> Option<Mask<'a>> {
        Mask::new(self.key?.with(INPUT), p, self.ids)
    }

    /// Returns the key of attention masks for probability `p`; `None` if nothing is dropped.
    pub(crate) fn attention_key(&self, p: f64) -> Option<Key> {
        self.key.filter(|_| p > 0.0).map(|key| key.with(ATTENTION))
    }
}

/// Gradients that [`Layer::finish_backward`] returns.
#[derive(Debug)]
pub struct FinishGrad<T: Real> {
    /// Gradient of the aggregate: destination rows x message width, without the columns that only aggregation reads (the
    /// scores of attention). `None` if neither a parameter below nor the input needs it: the backward ends here.
    pub aggregated: Option<Arc<Matrix<T>>>,
    /// Factor by which `aggregated` is the gradient of [`Pass::initial`] in the destination rows, if the layer reads it.
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
    /// Values that the backward steps need from the forward.
    type Cache: Default + Send;

    /// Returns the number of columns of a message; 0 if the layer reads no edges.
    fn message_width(&self) -> usize;

    /// Returns the number of columns of the output.
    fn output_width(&self) -> usize;

    /// Returns whether messages are the unchanged input and their aggregate depends on no parameter. The aggregate of a
    /// constant input is then computed only once.
    fn aggregates_input(&self) -> bool;

    /// Returns whether messages are the output of a ReLU of this layer, and perhaps a dropout.
    fn sends_relu_output(&self) -> bool {
        false
    }

    /// Returns whether the output of a row depends on its input other than through the aggregate. If not, and the aggregate
    /// is known, the input is not needed.
    fn finish_reads_input(&self) -> bool {
        true
    }

    /// Returns the messages of owned rows, given their input, to which dropout was applied.
    fn prepare(&self, input: Input<T>, pass: &Pass<T>, cache: &mut Self::Cache) -> Input<T>;

    /// Returns the aggregate of the messages of owned rows, for destination rows. If the block has a halo,
    /// [`Layer::add_halo`] completes it.
    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>>;

    /// Adds the messages of the block's halo rows to `sums`, the result of [`Layer::aggregate`].
    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>>;

    /// Returns the output for destination rows, given their aggregate. A cached aggregate may have more rows than the block
    /// has destinations; only the first are used.
    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// Returns the gradient of the aggregate, given that of the output. Adds to the gradients of parameters that act after
    /// the aggregation. If the block has a halo and the input needs a gradient, [`Layer::aggregate_backward`] does so
    /// instead, while gradients of halo rows are in flight.
    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> FinishGrad<T>;

    /// Returns the gradient of the messages of halo rows, given that of the aggregate. Must be called before
    /// [`Layer::aggregate_backward`], and only if the block has a halo.
    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// Returns the gradient of the messages of owned rows through this block's edges, given that of the aggregate. Adds to
    /// the gradients of parameters that [`Layer::finish_backward`] deferred.
    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// Returns the gradient of the input, if [`Pass::input_gradient`] is set, given that of the messages of owned rows. Adds
    /// to the gradients of parameters that act before the aggregation.
    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Option<Matrix<T>>;

    /// Returns all parameters.
    fn params(&self) -> Vec<&Param<T>>;

    /// Returns all parameters.
    fn params_mut(&mut self) -> Vec<&mut Param<T>>;

    /// Returns the bias that is added to every row of the output, if the layer has one.
    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        None
    }

    /// Returns the arrays of the state dict that are not trained.
    fn buffers(&self) -> Vec<&Param<T>> {
        Vec::new()
    }

    /// Returns the arrays of the state dict that are not trained.
    fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
        Vec::new()
    }
}

/// On which side of the aggregation a linear layer multiplies by its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Project {
    /// On the side with fewer columns. A first layer of dense features without dropout projects last: its aggregate is then
    /// computed once.
    #[default]
    Auto,
    /// Before it: output rows are aggregated.
    First,
    /// After it: input rows are aggregated.
    Last,
}

impl Project {
    /// Returns whether rows of width `inputs` are projected to width `outputs` before they are aggregated.
    pub fn is_first(self, inputs: usize, outputs: usize) -> bool {
        match self {
            Project::Auto => outputs < inputs,
            Project::First => true,
            Project::Last => false,
        }
    }
}
