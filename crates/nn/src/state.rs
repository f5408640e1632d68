//! State dicts: named arrays, read from and written to safetensors bytes.
//!
//! Weights are a state dict with PyG's names; checkpoints are state dicts with further arrays.

use std::collections::BTreeMap;
use std::sync::Arc;

use halograph_graph::error::{Error, Result};
use halograph_kernels::Real;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::layer::Layer;
use crate::model::Model;

/// One array: its shape and its values in little-endian bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Length of each axis; empty for a scalar.
    pub shape: Vec<usize>,
    dtype: Dtype,
    /// Shared, so that copies of a state are cheap.
    bytes: Arc<[u8]>,
}

impl Tensor {
    /// Creates an array of floating-point numbers.
    pub fn real<T: Real>(shape: &[usize], values: &[T]) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "values fill the shape");
        Tensor { shape: shape.to_vec(), dtype: dtype_of::<T>(), bytes: bytemuck::cast_slice(values).into() }
    }

    /// Creates a scalar of type u64.
    pub fn count(value: u64) -> Self {
        Tensor { shape: Vec::new(), dtype: Dtype::I64, bytes: (value as i64).to_le_bytes().as_slice().into() }
    }

    /// Returns the values in little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the type of the values, as numpy writes it; `None` for a type that no state of this crate has.
    pub fn descr(&self) -> Option<&'static str> {
        match self.dtype {
            Dtype::F32 => Some("<f4"),
            Dtype::F64 => Some("<f8"),
            Dtype::I64 => Some("<i8"),
            _ => None,
        }
    }

    /// Returns the floating-point numbers, converted to the precision `T`; `None` for another type.
    pub fn to_real<T: Real>(&self) -> Option<Vec<T>> {
        let each = |size: usize, read: fn(&[u8]) -> f64| {
            Some(self.bytes.chunks_exact(size).map(|b| T::of(read(b))).collect())
        };
        match self.dtype {
            Dtype::F32 => each(4, |b| f32::from_le_bytes(b.try_into().expect("4 bytes")) as f64),
            Dtype::F64 => each(8, |b| f64::from_le_bytes(b.try_into().expect("8 bytes"))),
            _ => None,
        }
    }

    /// Returns the scalar of type u64; `None` for another type.
    pub fn to_count(&self) -> Option<u64> {
        let bytes = self.bytes.as_ref().try_into().ok().filter(|_| self.dtype == Dtype::I64)?;
        u64::try_from(i64::from_le_bytes(bytes)).ok()
    }
}

fn dtype_of<T: Real>() -> Dtype {
    if size_of::<T>() == 4 { Dtype::F32 } else { Dtype::F64 }
}

/// Arrays by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State(pub BTreeMap<String, Tensor>);

impl State {
    /// Returns the bytes of a safetensors file; they depend on the state only.
    pub fn to_bytes(&self) -> Vec<u8> {
        let views = self.0.iter().map(|(name, t)| {
            let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
            (name, view.expect("shape and bytes match"))
        });
        safetensors::serialize(views, None).expect("views of whole arrays serialise")
    }

    /// Parses the bytes of a safetensors file; `place` names it in errors.
    pub fn from_bytes(place: &str, bytes: &[u8]) -> Result<Self> {
        let damaged = |e| Error::input(place, format!("not a safetensors file: {e}"));
        let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let owned = |(name, t): (String, TensorView)| {
            (name, Tensor { shape: t.shape().to_vec(), dtype: t.dtype(), bytes: t.data().into() })
        };
        Ok(State(tensors.tensors().into_iter().map(owned).collect()))
    }

    /// Adds all arrays of `other`, with `prefix` before their names.
    pub fn insert_all(&mut self, prefix: &str, other: State) {
        self.0.extend(other.0.into_iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor)));
    }

    /// Returns the arrays whose names begin with `prefix`, without the prefix.
    #[must_use]
    pub fn part(&self, prefix: &str) -> State {
        let strip =
            |(name, tensor): (&String, &Tensor)| Some((name.strip_prefix(prefix)?.into(), tensor.clone()));
        State(self.0.iter().filter_map(strip).collect())
    }

    /// Returns the floating-point numbers of array `name`, which must have `shape`.
    pub fn real<T: Real>(&self, place: &str, name: &str, shape: &[usize]) -> Result<Vec<T>> {
        let tensor = self.get(place, name)?;
        if tensor.shape != shape {
            let problem = format!("{name} has shape {:?} where the model has {shape:?}", tensor.shape);
            return Err(Error::input(place, problem).help("these are the weights of a model of another size"));
        }
        tensor.to_real().ok_or_else(|| Error::input(place, format!("{name} does not hold real numbers")))
    }

    /// Returns the scalar `name`.
    pub fn count(&self, place: &str, name: &str) -> Result<u64> {
        let number = self.get(place, name)?.to_count();
        number.ok_or_else(|| Error::input(place, format!("{name} is not a whole number")))
    }

    fn get(&self, place: &str, name: &str) -> Result<&Tensor> {
        self.0.get(name).ok_or_else(|| {
            Error::input(place, format!("{name} is missing"))
                .help("these are the weights of another kind of model")
        })
    }
}

impl<T: Real> Model<T> {
    /// Returns all weights and running statistics, with PyG's names and shapes.
    pub fn state(&self) -> State {
        let trained = self.params();
        let buffers = self.stages.iter().flat_map(|stage| Layer::buffers(&stage.layer));
        let params = trained.chain(buffers).map(|p| (p.name.clone(), Tensor::real(&p.shape, &p.value)));
        let norms = self.batch_norms().flat_map(|norm| {
            let width = [norm.running_mean.len()];
            let [mean, var, batches] = norm.buffer_names();
            [
                (mean, Tensor::real(&width, &norm.running_mean)),
                (var, Tensor::real(&width, &norm.running_var)),
                (batches, Tensor::count(norm.batches)),
            ]
        });
        State(params.chain(norms).collect())
    }

    /// Loads all weights and running statistics from `state`, which must hold exactly those of this model.
    pub fn load(&mut self, place: &str, state: &State) -> Result<()> {
        let own = self.state();
        if let Some(name) = state.0.keys().find(|name| !own.0.contains_key(*name)) {
            return Err(Error::input(place, format!("{name} is not in this model"))
                .help("these are the weights of another kind of model"));
        }
        for p in self.params_mut() {
            p.value = state.real(place, &p.name, &p.shape)?;
        }
        for p in self.stages.iter_mut().flat_map(|stage| Layer::buffers_mut(&mut stage.layer)) {
            p.value = state.real(place, &p.name, &p.shape)?;
        }
        for norm in self.batch_norms_mut() {
            let width = [norm.running_mean.len()];
            let [mean, var, batches] = norm.buffer_names();
            norm.running_mean = state.real(place, &mean, &width)?;
            norm.running_var = state.real(place, &var, &width)?;
            norm.batches = state.count(place, &batches)?;
        }
        Ok(())
    }
}
