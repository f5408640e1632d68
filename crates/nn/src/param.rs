//! Parameters with PyG's names and shapes, initialised by seed and name.

use std::ops::Range;

use halograph_kernels::Real;
use halograph_kernels::gemm::{Mat, Start, Tall, add_outer, multiply};
use halograph_kernels::keyed::Key;
use halograph_kernels::rows::add_column_sums;

use crate::matrix::Matrix;

/// A trainable array and its gradient. Backward steps *add* to `grad`; the optimiser zeroes it.
#[derive(Debug, Clone)]
pub struct Param<T> {
    /// Name in the state dict: `convs.0.lin.weight`.
    pub name: String,
    /// Shape as PyG's.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub value: Vec<T>,
    /// Gradient of the loss.
    pub grad: Vec<T>,
    /// Whether the loss does not depend on the value. See [`Param::set_inert`].
    is_inert: bool,
}

impl<T: Real> Param<T> {
    pub(crate) fn mat(&self) -> Mat<'_, T> {
        Mat::new(&self.value, self.shape[0], self.shape[1])
    }

    /// Returns `start + x * Wᵀ` for a weight W of outputs x inputs.
    pub fn project(&self, x: Tall<T>, start: Start<T>) -> Matrix<T> {
        let mut out = Matrix::unspecified(x.rows(), self.shape[0]);
        self.project_into(x, start, &mut out);
        out
    }

    /// Writes `start + x * Wᵀ` to `out`.
    pub fn project_into(&self, x: Tall<T>, start: Start<T>, out: &mut Matrix<T>) {
        let pitch = out.cols();
        multiply(T::one(), x, self.mat().t(), start, out.data_mut(), pitch);
    }

    /// Declares that the loss does not depend on the value: this is a bias directly before a BatchNorm, which
    /// subtracts it again. Its gradient is then exactly zero. If it were computed, it would be a rounding error that differs
    /// with the number of ranks, and Adam would amplify it. Weight decay still applies.
    pub fn set_inert(&mut self) {
        self.is_inert = true;
    }

    /// Returns whether the gradient is zero by construction.
    pub fn is_inert(&self) -> bool {
        self.is_inert
    }

    /// Adds to the gradient of a bias that was added to every row, given the gradient of the rows.
    pub fn add_bias_grad(&mut self, grad: &Matrix<T>) {
        if !self.is_inert {
            add_column_sums(grad.data(), &mut self.grad);
        }
    }

    /// Adds the gradient of [`Param::project`] with respect to the weight: `dW += gᵀ * x`.
    pub fn add_grad(&mut self, x: Tall<T>, grad: Tall<T>) {
        add_outer(T::one(), grad, x, &mut self.grad);
    }

    /// Returns the gradient of [`Param::project`] with respect to `x`: `g * W`.
    pub fn project_back(&self, grad: Tall<T>) -> Matrix<T> {
        let mut out = Matrix::unspecified(grad.rows(), self.shape[1]);
        multiply(T::one(), grad, self.mat(), Start::Zero, out.data_mut(), self.shape[1]);
        out
    }

    /// Adds `g * W` to `rows` of `out`.
    pub fn add_back(&self, grad: Tall<T>, rows: Range<usize>, out: &mut Matrix<T>) {
        let pitch = out.cols();
        multiply(T::one(), grad, self.mat(), Start::Kept, out.run_mut(rows), pitch);
    }
}

/// Creates the parameters of a part of a model: a prefix of their names, and the seed of their initial values.
///
/// A value is a function of (seed, full name, position), so neither the order of construction nor other
/// parameters change it.
#[derive(Debug, Clone)]
pub struct Scope {
    prefix: String,
    /// `None`: parameters get no values.
    seed: Option<u64>,
}

impl Scope {
    /// Creates the scope of a whole model.
    pub fn new(seed: u64) -> Self {
        Scope { prefix: String::new(), seed: Some(seed) }
    }

    /// Creates the scope of a model of which only names and shapes are needed: no values are allocated.
    pub(crate) fn outline() -> Self {
        Scope { prefix: String::new(), seed: None }
    }

    /// Returns the scope of a part, given its name or its index in a list.
    #[must_use]
    pub fn child(&self, part: impl std::fmt::Display) -> Scope {
        Scope { prefix: format!("{}{part}.", self.prefix), seed: self.seed }
    }

    /// Creates a parameter, uniform in ±√(6 / (rows + columns)), rows and columns being the last two axes (Glorot, Bengio 2010).
    pub fn glorot<T: Real>(&self, name: &str, shape: &[usize]) -> Param<T> {
        let sides: usize = shape[shape.len() - 2..].iter().sum();
        self.uniform(name, shape, (6.0 / sides as f64).sqrt())
    }

    /// Creates a weight or bias, uniform in ±1/√`inputs`: Kaiming's initialisation with a = √5, PyTorch's default.
    pub fn kaiming<T: Real>(&self, name: &str, shape: &[usize], inputs: usize) -> Param<T> {
        self.uniform(name, shape, 1.0 / (inputs.max(1) as f64).sqrt())
    }

    /// Creates a parameter whose elements are all `value`.
    pub fn constant<T: Real>(&self, name: &str, shape: &[usize], value: f64) -> Param<T> {
        self.param(name, shape, |_| value)
    }

    /// Returns `len` times `value`, for arrays that are not trained.
    pub(crate) fn untrained<T: Real>(&self, len: usize, value: f64) -> Vec<T> {
        vec![T::of(value); if self.seed.is_some() { len } else { 0 }]
    }

    fn uniform<T: Real>(&self, name: &str, shape: &[usize], bound: f64) -> Param<T> {
        let key = Key::new(self.seed.unwrap_or_default(), &format!("init {}{name}", self.prefix));
        self.param(name, shape, |i| bound * (2.0 * key.unit(i) - 1.0))
    }

    fn param<T: Real>(&self, name: &str, shape: &[usize], value: impl Fn(u64) -> f64) -> Param<T> {
        let len = if self.seed.is_some() { shape.iter().product() } else { 0 };
        let value = (0..len as u64).map(|i| T::of(value(i))).collect();
        let grad = vec![T::zero(); len];
        Param { name: format!("{}{name}", self.prefix), shape: shape.to_vec(), value, grad, is_inert: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_depend_on_seed_and_full_name_only() {
        let scope = Scope::new(1).child("convs").child(0);
        let weight = |scope: &Scope| scope.glorot::<f64>("lin.weight", &[4, 3]);
        assert_eq!(weight(&scope).name, "convs.0.lin.weight");
        assert_eq!(weight(&scope).value, weight(&scope).value);
        assert_ne!(weight(&scope).value, weight(&Scope::new(1).child("convs").child(1)).value);
        assert_ne!(weight(&scope).value, weight(&Scope::new(2).child("convs").child(0)).value);
    }

    #[test]
    fn bounds_are_pytorchs() {
        let spread = |p: Param<f64>| p.value.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let glorot = spread(Scope::new(1).glorot("w", &[1, 60, 40]));
        assert!(glorot < 0.06f64.sqrt() && glorot > 0.99 * 0.06f64.sqrt(), "{glorot}");
        let kaiming = spread(Scope::new(1).kaiming("w", &[50, 25], 25));
        assert!(kaiming < 0.2 && kaiming > 0.198, "{kaiming}");
    }
}
