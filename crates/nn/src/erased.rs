//! Layers of any type behind one trait object, so that a model can be a list.

use std::any::Any;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::Param;

/// A layer of any type.
pub type AnyLayer<T> = Box<dyn ErasedLayer<T> + Send + Sync>;

/// The cache of a layer of any type. The layer creates it at the first use.
#[derive(Default)]
pub struct AnyCache(Option<Box<dyn Any + Send>>);

impl AnyCache {
    /// Returns the cache of a layer whose cache type is `C`.
    fn of<C: Default + Send + 'static>(&mut self) -> &mut C {
        let cache = self.0.get_or_insert_with(|| Box::<C>::default());
        cache.downcast_mut().expect("a cache serves one layer")
    }
}

/// Declares [`ErasedLayer`], and implements it for every [`Layer`] and [`Layer`] for [`AnyLayer`]. The methods are those
/// of [`Layer`]; steps also take a pass and a cache.
macro_rules! erase {
    (
        getters { $(fn $getter:ident() -> $value:ty;)* }
        getters_mut { $(fn $getter_mut:ident() -> $value_mut:ty;)* }
        steps { $(fn $step:ident($($arg:ident: $type:ty),*) -> $out:ty;)* }
        steps_mut { $(fn $step_mut:ident($($arg_mut:ident: $type_mut:ty),*) -> $out_mut:ty;)* }
    ) => {
        /// [`Layer`] without its associated type. Implemented for every layer; use it through [`AnyLayer`], which is a layer
        /// itself.
        pub trait ErasedLayer<T: Real> {
            $(#[doc(hidden)]
            fn $getter(&self) -> $value;)*
            $(#[doc(hidden)]
            fn $getter_mut(&mut self) -> $value_mut;)*
            $(#[doc(hidden)]
            fn $step(&self, $($arg: $type,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out;)*
            $(#[doc(hidden)]
            fn $step_mut(&mut self, $($arg_mut: $type_mut,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out_mut;)*
        }

        impl<T: Real, L: Layer<T>> ErasedLayer<T> for L
        where
            L::Cache: 'static,
        {
            $(fn $getter(&self) -> $value {
                Layer::$getter(self)
            })*
            $(fn $getter_mut(&mut self) -> $value_mut {
                Layer::$getter_mut(self)
            })*
            $(fn $step(&self, $($arg: $type,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out {
                Layer::$step(self, $($arg,)* pass, cache.of())
            })*
            $(fn $step_mut(&mut self, $($arg_mut: $type_mut,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out_mut {
                Layer::$step_mut(self, $($arg_mut,)* pass, cache.of())
            })*
        }

        impl<T: Real> Layer<T> for AnyLayer<T> {
            type Cache = AnyCache;

            $(fn $getter(&self) -> $value {
                (**self).$getter()
            })*
            $(fn $getter_mut(&mut self) -> $value_mut {
                (**self).$getter_mut()
            })*
            $(fn $step(&self, $($arg: $type,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out {
                (**self).$step($($arg,)* pass, cache)
            })*
            $(fn $step_mut(&mut self, $($arg_mut: $type_mut,)* pass: &Pass<T>, cache: &mut AnyCache) -> $out_mut {
                (**self).$step_mut($($arg_mut,)* pass, cache)
            })*
        }
    };
}

erase! {
    getters {
        fn message_width() -> usize;
        fn output_width() -> usize;
        fn aggregates_input() -> bool;
        fn sends_relu_output() -> bool;
        fn finish_reads_input() -> bool;
        fn params() -> Vec<&Param<T>>;
        fn buffers() -> Vec<&Param<T>>;
    }
    getters_mut {
        fn params_mut() -> Vec<&mut Param<T>>;
        fn output_bias() -> Option<&mut Param<T>>;
        fn buffers_mut() -> Vec<&mut Param<T>>;
    }
    steps {
        fn prepare(input: Input<T>) -> Input<T>;
        fn aggregate(block: &Block, messages: Input<T>) -> Arc<Matrix<T>>;
        fn add_halo(block: &Block, halo: Input<T>, sums: Arc<Matrix<T>>) -> Arc<Matrix<T>>;
        fn finish(block: &Block, aggregated: Arc<Matrix<T>>) -> Matrix<T>;
    }
    steps_mut {
        fn finish_backward(block: &Block, grad: Matrix<T>) -> FinishGrad<T>;
        fn halo_backward(block: &Block, grad: &Matrix<T>) -> Matrix<T>;
        fn aggregate_backward(block: &Block, grad: Arc<Matrix<T>>) -> Matrix<T>;
        fn prepare_backward(grad: Matrix<T>) -> Option<Matrix<T>>;
    }
}
