//! The contract of a layer: three steps forward and their three backwards.
//!
//! ```text
//! input (owned rows) ─ prepare ─▶ messages (owned rows) ┄ exchange ┄▶ messages (source rows)
//!                                 ─ aggregate over a Block ─▶ (destination rows) ─ finish ─▶ output (destination rows)
//! ```
//!
//! `prepare` and `finish` are row-wise; only `aggregate` reads edges. What travels between owners is the output of
//! `prepare`, computed by the owner of a row under the owner's dropout mask, so that nobody multiplies a row of
//! another by a weight. Owned rows are the first source rows of the block, and its destinations are among them; in one
//! process all source rows are owned and nothing travels.
//!
//! The backwards run in opposite order. `aggregate_backward` gives a gradient for every source row: those of
//! rows owned elsewhere go back to their owners, who add them before `prepare_backward`.
//!
//! A layer holds parameters only. What a backward needs of its forward is in a cache, so that several blocks can be
//! under way at once.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::dropout::dropout;
use halograph_kernels::keyed::Key;
use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;
use crate::param::Param;

/// Word that names the mask of a layer's input under the layer's key.
const INPUT: u64 = 0;
/// Word that names the mask of its attention.
const ATTENTION: u64 = 1;

/// What one forward and its backward through one layer are given beside their matrices.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a, T> {
    /// Names the random masks: seed, epoch, batch and layer. `None`: evaluation, nothing is dropped.
    pub key: Option<Key>,
    /// Dataset vertex id of each owned row; `None`: the row number.
    pub ids: Option<&'a [u32]>,
    /// Owned rows of the first hidden representation, for layers that mix it in (GCNII).
    pub initial: Option<&'a Matrix<T>>,
    /// Whether anybody wants the gradient of the input; the first layer's is not needed.
    pub input_gradient: bool,
}

impl<T: Real> Pass<'_, T> {
    /// A forward without dropout, all rows under their own numbers.
    pub fn evaluation() -> Self {
        Pass { key: None, ids: None, initial: None, input_gradient: true }
    }

    /// Applies the input mask to owned rows; the backward is the same. A shared matrix is copied only if it changes.
    pub(crate) fn drop_input(&self, x: &mut Arc<Matrix<T>>, p: f64) {
        if let (Some(key), true) = (self.key, p > 0.0) {
            let x = Arc::make_mut(x);
            let cols = x.cols();
            dropout(x.data_mut(), cols, self.ids, key.with(INPUT), p);
        }
    }

    /// Applies the input mask to a gradient.
    pub(crate) fn drop_gradient(&self, grad: &mut Matrix<T>, p: f64) {
        if let Some(key) = self.key {
            let cols = grad.cols();
            dropout(grad.data_mut(), cols, self.ids, key.with(INPUT), p);
        }
    }

    /// The key of attention masks, if anything is dropped with probability `p`.
    pub(crate) fn attention_key(&self, p: f64) -> Option<Key> {
        self.key.filter(|_| p > 0.0).map(|key| key.with(ATTENTION))
    }
}

/// Gradients that leave [`Layer::finish_backward`].
#[derive(Debug)]
pub struct FinishGrad<T> {
    /// Of the aggregate: destination rows x message width (less the columns that aggregation uses up).
    pub aggregated: Matrix<T>,
    /// Of [`Pass::initial`], in its destination rows, if the layer read it.
    pub initial: Option<Matrix<T>>,
}

/// A layer over a [`Block`].
pub trait Layer<T: Real> {
    /// What backwards need of their forwards.
    type Cache: Default + Send;

    /// Width of a message, 0 if nothing needs to travel.
    fn message_width(&self) -> usize;

    /// Whether parameters act before the aggregation. If not, and nobody wants the input's gradient, the
    /// backward may end after [`Layer::finish_backward`].
    fn trains_messages(&self) -> bool;

    /// Owned rows of the input to owned rows of messages.
    fn prepare(&self, input: Arc<Matrix<T>>, pass: &Pass<T>, cache: &mut Self::Cache) -> Arc<Matrix<T>>;

    /// Messages of all source rows to destination rows.
    fn aggregate(
        &self,
        block: &Block,
        messages: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// Aggregated destination rows to destination rows of the output.
    fn finish(
        &self,
        block: &Block,
        aggregated: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T>;

    /// From the gradient of the output; adds to the gradients of parameters.
    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> FinishGrad<T>;

    /// From the gradient of the aggregate to that of the messages of all source rows.
    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
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
}

/// On which side of the aggregation a linear layer multiplies by its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Project {
    /// Where rows are narrower.
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
