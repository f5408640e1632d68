//! Layers whose kind is known at run time only, so that a model can be a list.

use std::any::Any;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::Param;

/// Some layer.
pub type AnyLayer<T> = Box<dyn ErasedLayer<T> + Send + Sync>;

/// The cache of some layer, made by the layer when it first needs one.
#[derive(Default)]
pub struct AnyCache(Option<Box<dyn Any + Send>>);

impl AnyCache {
    fn of<C: Default + Send + 'static>(&mut self) -> &mut C {
        let cache = self.0.get_or_insert_with(|| Box::<C>::default());
        cache.downcast_mut().expect("a cache serves one layer")
    }
}

/// [`Layer`] without its associated type. Every layer has it; use it through [`AnyLayer`], which is a layer itself.
pub trait ErasedLayer<T: Real> {
    #[doc(hidden)]
    fn message_width(&self) -> usize;
    #[doc(hidden)]
    fn aggregates_input(&self) -> bool;
    #[doc(hidden)]
    fn prepare(&self, input: Input<T>, pass: &Pass<T>, cache: &mut AnyCache) -> Input<T>;
    #[doc(hidden)]
    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Arc<Matrix<T>>;
    #[doc(hidden)]
    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Arc<Matrix<T>>;
    #[doc(hidden)]
    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Matrix<T>;
    #[doc(hidden)]
    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> FinishGrad<T>;
    #[doc(hidden)]
    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Matrix<T>;
    #[doc(hidden)]
    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Matrix<T>;
    #[doc(hidden)]
    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut AnyCache,
    ) -> Option<Matrix<T>>;
    #[doc(hidden)]
    fn params(&self) -> Vec<&Param<T>>;
    #[doc(hidden)]
    fn params_mut(&mut self) -> Vec<&mut Param<T>>;
    #[doc(hidden)]
    fn output_bias(&mut self) -> Option<&mut Param<T>>;
    #[doc(hidden)]
    fn buffers(&self) -> Vec<&Param<T>>;
    #[doc(hidden)]
    fn buffers_mut(&mut self) -> Vec<&mut Param<T>>;
}

/// Both directions at once: every layer is erased by calling it, every erased layer is a layer by calling what it hides.
macro_rules! forward {
    (
        shared { $(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)* }
        exclusive { $(fn $name_mut:ident($($arg_mut:ident: $type_mut:ty),*) -> $out_mut:ty;)* }
    ) => {
        impl<T: Real, L: Layer<T>> ErasedLayer<T> for L
        where
            L::Cache: 'static,
        {
            fn message_width(&self) -> usize {
                Layer::message_width(self)
            }
            fn aggregates_input(&self) -> bool {
                Layer::aggregates_input(self)
            }
            fn params(&self) -> Vec<&Param<T>> {
                Layer::params(self)
            }
            fn params_mut(&mut self) -> Vec<&mut Param<T>> {
                Layer::params_mut(self)
            }
            fn output_bias(&mut self) -> Option<&mut Param<T>> {
                Layer::output_bias(self)
            }
            fn buffers(&self) -> Vec<&Param<T>> {
                Layer::buffers(self)
            }
            fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
                Layer::buffers_mut(self)
            }
            $(fn $name(&self, $($arg: $type,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out {
                Layer::$name(self, $($arg,)* pass, cache.of())
            })*
            $(fn $name_mut(&mut self, $($arg_mut: $type_mut,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out_mut {
                Layer::$name_mut(self, $($arg_mut,)* pass, cache.of())
            })*
        }

        impl<T: Real> Layer<T> for AnyLayer<T> {
            type Cache = AnyCache;

            fn message_width(&self) -> usize {
                (**self).message_width()
            }
            fn aggregates_input(&self) -> bool {
                (**self).aggregates_input()
            }
            fn params(&self) -> Vec<&Param<T>> {
                (**self).params()
            }
            fn params_mut(&mut self) -> Vec<&mut Param<T>> {
                (**self).params_mut()
            }
            fn output_bias(&mut self) -> Option<&mut Param<T>> {
                (**self).output_bias()
            }
            fn buffers(&self) -> Vec<&Param<T>> {
                (**self).buffers()
            }
            fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
                (**self).buffers_mut()
            }
            $(fn $name(&self, $($arg: $type,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out {
                (**self).$name($($arg,)* pass, cache)
            })*
            $(fn $name_mut(&mut self, $($arg_mut: $type_mut,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out_mut {
                (**self).$name_mut($($arg_mut,)* pass, cache)
            })*
        }
    };
}

forward! {
    shared {
        fn prepare(input: Input<T>) -> Input<T>;
        fn aggregate(block: &Block, messages: Input<T>) -> Arc<Matrix<T>>;
        fn add_halo(block: &Block, halo: Input<T>, sums: Arc<Matrix<T>>) -> Arc<Matrix<T>>;
        fn finish(block: &Block, aggregated: Arc<Matrix<T>>) -> Matrix<T>;
    }
    exclusive {
        fn finish_backward(block: &Block, grad: Matrix<T>) -> FinishGrad<T>;
        fn halo_backward(block: &Block, grad: &Matrix<T>) -> Matrix<T>;
        fn aggregate_backward(block: &Block, grad: Arc<Matrix<T>>) -> Matrix<T>;
        fn prepare_backward(grad: Matrix<T>) -> Option<Matrix<T>>;
    }
}
