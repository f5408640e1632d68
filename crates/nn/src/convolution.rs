//! Layers that sum messages along edges with fixed weights: every layer but attention and dense ones.
//!
//! A [`Convolution`] states its edge weights and its row-wise steps. The steps over edges, with and without halo rows, are
//! written once, here: every convolution is a [`Layer`].

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::Param;
use crate::propagation::Propagation;

/// A layer whose aggregation is a sum with fixed edge weights.
///
/// `own` is the range of owned rows that the layer computes: the destinations of its block.
pub trait Convolution {
    /// The floating-point type of the layer.
    type Scalar: Real;
    /// Values that the backward of the row-wise steps needs from the forward.
    type Saved: Default + Send;

    /// See [`Layer::message_width`].
    fn message_width(&self) -> usize;

    /// See [`Layer::output_width`].
    fn output_width(&self) -> usize;

    /// See [`Layer::aggregates_input`].
    fn aggregates_input(&self) -> bool;

    /// See [`Layer::sends_relu_output`].
    fn sends_relu_output(&self) -> bool {
        false
    }

    /// See [`Layer::finish_reads_input`].
    fn finish_reads_input(&self) -> bool {
        true
    }

    /// Returns the edge weights over `block`.
    fn propagation(&self, block: &Block) -> Propagation<Self::Scalar>;

    /// See [`Layer::prepare`].
    fn prepare(
        &self,
        input: Input<Self::Scalar>,
        pass: &Pass<Self::Scalar>,
        saved: &mut Self::Saved,
    ) -> Input<Self::Scalar>;

    /// See [`Layer::finish`].
    fn finish(
        &self,
        sums: Arc<Matrix<Self::Scalar>>,
        own: Range<usize>,
        pass: &Pass<Self::Scalar>,
        saved: &mut Self::Saved,
    ) -> Matrix<Self::Scalar>;

    /// Adds to the gradients of parameters above the aggregation, given the gradient of the output.
    ///
    /// Runs before [`Convolution::finish_backward`] or, so that gradients of halo rows are sent earlier, after it.
    fn weight_backward(&mut self, grad: &Matrix<Self::Scalar>, own: Range<usize>, saved: &mut Self::Saved);

    /// Returns the gradient of the sums, given the gradient of the output.
    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<Self::Scalar>>,
        own: Range<usize>,
        pass: &Pass<Self::Scalar>,
        saved: &mut Self::Saved,
    ) -> FinishGrad<Self::Scalar>;

    /// See [`Layer::prepare_backward`].
    fn prepare_backward(
        &mut self,
        grad: Matrix<Self::Scalar>,
        pass: &Pass<Self::Scalar>,
        saved: &mut Self::Saved,
    ) -> Option<Matrix<Self::Scalar>>;

    /// See [`Layer::params`].
    fn params(&self) -> Vec<&Param<Self::Scalar>>;

    /// See [`Layer::params_mut`].
    fn params_mut(&mut self) -> Vec<&mut Param<Self::Scalar>>;

    /// See [`Layer::output_bias`].
    fn output_bias(&mut self) -> Option<&mut Param<Self::Scalar>> {
        None
    }

    /// See [`Layer::buffers`].
    fn buffers(&self) -> Vec<&Param<Self::Scalar>> {
        Vec::new()
    }

    /// See [`Layer::buffers_mut`].
    fn buffers_mut(&mut self) -> Vec<&mut Param<Self::Scalar>> {
        Vec::new()
    }
}

/// Values that the backward of a convolution needs from the forward.
#[derive(Debug)]
pub struct ConvolutionCache<T: Real, S> {
    propagation: Propagation<T>,
    saved: S,
    /// Gradient of the output, until [`Convolution::weight_backward`] has run.
    output_grad: Option<Arc<Matrix<T>>>,
}

impl<T: Real, S: Default> Default for ConvolutionCache<T, S> {
    fn default() -> Self {
        ConvolutionCache { propagation: Propagation::default(), saved: S::default(), output_grad: None }
    }
}

impl<T: Real, C: Convolution<Scalar = T>> Layer<T> for C {
    type Cache = ConvolutionCache<T, C::Saved>;

    fn message_width(&self) -> usize {
        Convolution::message_width(self)
    }

    fn output_width(&self) -> usize {
        Convolution::output_width(self)
    }

    fn aggregates_input(&self) -> bool {
        Convolution::aggregates_input(self)
    }

    fn sends_relu_output(&self) -> bool {
        Convolution::sends_relu_output(self)
    }

    fn finish_reads_input(&self) -> bool {
        Convolution::finish_reads_input(self)
    }

    fn prepare(&self, input: Input<T>, pass: &Pass<T>, cache: &mut Self::Cache) -> Input<T> {
        Convolution::prepare(self, input, pass, &mut cache.saved)
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        _: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>> {
        cache.propagation = self.propagation(block);
        Arc::new(cache.propagation.forward(block, &messages))
    }

    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>> {
        cache.propagation.add_halo(block, &halo, sums)
    }

    fn finish(
        &self,
        block: &Block,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        Convolution::finish(self, sums, block.destinations(), pass, &mut cache.saved)
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> FinishGrad<T> {
        let (own, grad) = (block.destinations(), Arc::new(grad));
        if pass.input_gradient && block.halo().is_some() {
            cache.output_grad = Some(grad.clone());
        } else {
            self.weight_backward(&grad, own.clone(), &mut cache.saved);
        }
        Convolution::finish_backward(self, &grad, own, pass, &mut cache.saved)
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        _: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        cache.propagation.halo_backward(block, grad)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        if let Some(output_grad) = cache.output_grad.take() {
            self.weight_backward(&output_grad, block.destinations(), &mut cache.saved);
        }
        cache.propagation.backward(block, &grad)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Option<Matrix<T>> {
        Convolution::prepare_backward(self, grad, pass, &mut cache.saved)
    }

    fn params(&self) -> Vec<&Param<T>> {
        Convolution::params(self)
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        Convolution::params_mut(self)
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Convolution::output_bias(self)
    }

    fn buffers(&self) -> Vec<&Param<T>> {
        Convolution::buffers(self)
    }

    fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
        Convolution::buffers_mut(self)
    }
}
