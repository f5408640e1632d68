//! Normalisation between layers, under PyG's names: `norms.i.weight` (LayerNorm in node mode), `norms.i.module.weight`
//! (BatchNorm).
//!
//! Rows x width → rows x width. LayerNorm is row-wise. BatchNorm is not: its statistics are over all rows of all ranks,
//! so its forward and backward are split: the caller all-reduces the sums in between.

use halograph_kernels::Real;
use halograph_kernels::batch_norm::{self, GradSums, Moments};
use halograph_kernels::buffer::Buffer;
use halograph_kernels::epilogue::{Affine, Epilogue};

use crate::matrix::Matrix;
use crate::param::{Param, Scope};

/// LayerNorm: normalises every row to mean 0 and variance 1, then `* weight + bias`.
#[derive(Debug, Clone)]
pub struct LayerNorm<T> {
    weight: Param<T>,
    bias: Param<T>,
}

/// Values that the backward of a norm needs from the forward: the normalised rows, and the factor of each row (LayerNorm)
/// or column (BatchNorm).
#[derive(Debug, Default)]
pub struct NormCache<T: Real> {
    normal: Matrix<T>,
    scales: Buffer<T>,
}

impl<T: Real> LayerNorm<T> {
    /// Creates a norm with weight 1 and bias 0.
    pub fn new(scope: &Scope, width: usize) -> Self {
        LayerNorm {
            weight: scope.constant("weight", &[width], 1.0),
            bias: scope.constant("bias", &[width], 0.0),
        }
    }

    /// Normalises `x` and applies `epilogue` in the same pass.
    pub fn forward(&self, mut x: Matrix<T>, epilogue: &Epilogue, cache: &mut NormCache<T>) -> Matrix<T> {
        let mut out = Matrix::unspecified(x.rows(), x.cols());
        let affine = Affine { weight: &self.weight.value, bias: &self.bias.value };
        cache.scales = Buffer::unspecified(x.rows());
        epilogue.layer_norm(affine, x.data_mut(), &mut cache.scales, out.data_mut());
        cache.normal = x;
        out
    }

    /// Returns the gradient of the input, given that of `output`, the result of [`LayerNorm::forward`]. Adds to the
    /// gradients of parameters.
    pub fn backward(
        &mut self,
        mut grad: Matrix<T>,
        epilogue: &Epilogue,
        output: &Matrix<T>,
        cache: &NormCache<T>,
    ) -> Matrix<T> {
        let saved = [cache.normal.data(), &cache.scales, output.data()];
        let grads = [&mut self.weight.grad[..], &mut self.bias.grad];
        epilogue.layer_norm_backward(&self.weight.value, saved, grad.data_mut(), grads);
        grad
    }

    /// Returns all parameters.
    pub fn params(&self) -> Vec<&Param<T>> {
        vec![&self.weight, &self.bias]
    }

    /// Returns all parameters.
    pub fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.weight, &mut self.bias]
    }
}

/// BatchNorm: normalises every column to mean 0 and variance 1, then `* weight + bias`.
///
/// Training, on each rank:
///
/// 1. Compute [`Moments::of`] its rows and merge the moments of all ranks; call [`BatchNorm::forward`] with the result.
/// 2. Compute [`BatchNorm::gradient_sums`] and add the sums of all ranks; call [`BatchNorm::backward`] with the result.
#[derive(Debug, Clone)]
pub struct BatchNorm<T> {
    weight: Param<T>,
    bias: Param<T>,
    /// Running mean of the columns, for evaluation: `module.running_mean`.
    pub running_mean: Vec<T>,
    /// Running variance of the columns: `module.running_var`.
    pub running_var: Vec<T>,
    /// Number of training forwards: `module.num_batches_tracked`.
    pub batches: u64,
}

/// The sums over rows that a backward through batch statistics needs.
#[derive(Debug, Clone, PartialEq)]
pub struct NormSums<T> {
    /// Number of rows.
    pub count: u64,
    /// `Σ g * x̂` of each column: the gradient of the weight.
    pub weight_grad: Vec<T>,
    /// `Σ g` of each column: the gradient of the bias.
    pub bias_grad: Vec<T>,
}

impl<T: Real> BatchNorm<T> {
    /// Creates a norm with weight 1, bias 0, running mean 0 and running variance 1.
    pub fn new(scope: &Scope, width: usize) -> Self {
        let scope = scope.child("module");
        BatchNorm {
            weight: scope.constant("weight", &[width], 1.0),
            bias: scope.constant("bias", &[width], 0.0),
            running_mean: scope.untrained(width, 0.0),
            running_var: scope.untrained(width, 1.0),
            batches: 0,
        }
    }

    /// Returns the names of the running statistics in a state dict: mean, variance, number of batches.
    pub(crate) fn buffer_names(&self) -> [String; 3] {
        let module = self.weight.name.trim_end_matches("weight");
        ["running_mean", "running_var", "num_batches_tracked"].map(|buffer| format!("{module}{buffer}"))
    }

    /// Normalises `x` in training, by the `moments` of all rows of all ranks, and updates the running statistics.
    pub fn forward(&mut self, x: Matrix<T>, moments: &Moments<T>, cache: &mut NormCache<T>) -> Matrix<T> {
        moments.update_running(&mut self.running_mean, &mut self.running_var);
        self.batches += 1;
        cache.scales = Buffer::from(&moments.scales()[..]);
        let (normal, out) = self.apply(x, &moments.mean, &cache.scales);
        cache.normal = normal;
        out
    }

    /// Normalises `x` by the running statistics.
    pub fn evaluate(&self, x: Matrix<T>) -> Matrix<T> {
        let scale = |&v: &T| (v + T::of(batch_norm::EPS)).sqrt().recip();
        let scales: Vec<T> = self.running_var.iter().map(scale).collect();
        self.apply(x, &self.running_mean, &scales).1
    }

    fn apply(&self, mut x: Matrix<T>, mean: &[T], scales: &[T]) -> (Matrix<T>, Matrix<T>) {
        batch_norm::normalize(x.data_mut(), mean, scales);
        let mut out = Matrix::unspecified(x.rows(), x.cols());
        batch_norm::affine(x.data(), &self.weight.value, &self.bias.value, out.data_mut());
        (x, out)
    }

    /// Returns the sums over this rank's rows that [`BatchNorm::backward`] needs over all rows. Also adds them to the
    /// gradients of the parameters, which are equal to them. As for every layer, the gradients of a rank cover its own rows
    /// and are all-reduced later.
    pub fn gradient_sums(&mut self, grad: &Matrix<T>, cache: &NormCache<T>) -> NormSums<T> {
        let width = self.weight.value.len();
        let mut sums = NormSums {
            count: grad.rows() as u64,
            weight_grad: vec![T::zero(); width],
            bias_grad: vec![T::zero(); width],
        };
        batch_norm::affine_backward(
            cache.normal.data(),
            grad.data(),
            &mut sums.weight_grad,
            &mut sums.bias_grad,
        );
        let add = |grad: &mut [T], sums: &[T]| grad.iter_mut().zip(sums).for_each(|(g, &s)| *g += s);
        add(&mut self.weight.grad, &sums.weight_grad);
        add(&mut self.bias.grad, &sums.bias_grad);
        sums
    }

    /// Returns the gradient of the input, given that of the output and the `sums` over all rows of all ranks.
    pub fn backward(&self, mut grad: Matrix<T>, sums: &NormSums<T>, cache: &NormCache<T>) -> Matrix<T> {
        let sums = GradSums { count: sums.count, weight_grad: &sums.weight_grad, bias_grad: &sums.bias_grad };
        let normal = cache.normal.data();
        batch_norm::backward(normal, &cache.scales, &self.weight.value, Some(sums), grad.data_mut());
        grad
    }

    /// Returns all parameters.
    pub fn params(&self) -> Vec<&Param<T>> {
        vec![&self.weight, &self.bias]
    }

    /// Returns all parameters.
    pub fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.weight, &mut self.bias]
    }
}

#[cfg(test)]
mod tests {
    use halograph_kernels::activation::Activation;

    use super::*;
    use crate::testing::{INPUTS, assert_close, input};

    fn scrambled(params: Vec<&mut Param<f64>>) {
        for (i, p) in params.into_iter().enumerate() {
            p.value = input::<f64>(20 + i as u64).data()[..INPUTS].to_vec();
        }
    }

    fn differences(
        x: &Matrix<f64>,
        g: &Matrix<f64>,
        mut forward: impl FnMut(Matrix<f64>) -> Matrix<f64>,
    ) -> Vec<f64> {
        let mut loss = |i: usize, step: f64| {
            let mut x = x.clone();
            x.data_mut()[i] += step;
            forward(x).data().iter().zip(g.data()).map(|(o, g)| o * g).sum::<f64>()
        };
        (0..x.data().len()).map(|i| (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5).collect()
    }

    #[test]
    fn layer_norms_input_gradient_agrees_with_differences() {
        let mut norm = LayerNorm::new(&Scope::new(1).child("norms").child(0), INPUTS);
        assert_eq!(norm.params()[0].name, "norms.0.weight");
        scrambled(norm.params_mut());
        let (x, g) = (input(0), input(1));
        let mut cache = NormCache::default();
        let epilogue = Epilogue { activation: Activation::Elu, mask: None };
        let out = norm.forward(x.clone(), &epilogue, &mut cache);
        let grad = norm.backward(g.clone(), &epilogue, &out, &cache);
        let forward = |x| norm.forward(x, &epilogue, &mut NormCache::default());
        assert_close(grad.data(), &differences(&x, &g, forward), 1e-6);
    }

    #[test]
    fn batch_norm_over_two_ranks_is_batch_norm_over_all_rows() {
        let mut norm = BatchNorm::new(&Scope::new(1).child("norms").child(0), INPUTS);
        assert_eq!(norm.params()[1].name, "norms.0.module.bias");
        scrambled(norm.params_mut());
        let (x, g) = (input::<f64>(0), input::<f64>(1));
        let half = |m: &Matrix<f64>, rows: std::ops::Range<usize>| {
            Matrix::new(rows.len(), INPUTS, m.run(rows).to_vec())
        };
        let ranks = [0..3, 3..x.rows()];

        let mut moments = Moments::of(x.run(ranks[0].clone()), INPUTS);
        moments.merge(&Moments::of(x.run(ranks[1].clone()), INPUTS));
        let mut caches = [NormCache::default(), NormCache::default()];
        let mut sums = [0, 1].map(|r| {
            norm.forward(half(&x, ranks[r].clone()), &moments, &mut caches[r]);
            norm.gradient_sums(&half(&g, ranks[r].clone()), &caches[r])
        });
        let [total, other] = &mut sums;
        total.count += other.count;
        total.weight_grad.iter_mut().zip(&other.weight_grad).for_each(|(t, o)| *t += o);
        total.bias_grad.iter_mut().zip(&other.bias_grad).for_each(|(t, o)| *t += o);
        let grad: Vec<f64> = (0..2)
            .flat_map(|r| norm.backward(half(&g, ranks[r].clone()), &sums[0], &caches[r]).data().to_vec())
            .collect();
        let whole = |x: Matrix<f64>| {
            let moments = Moments::of(x.data(), INPUTS);
            norm.clone().forward(x, &moments, &mut NormCache::default())
        };
        assert_close(&grad, &differences(&x, &g, whole), 1e-6);
        assert_close(&norm.weight.grad, &sums[0].weight_grad, 1e-14);
    }

    #[test]
    fn evaluation_uses_running_statistics() {
        let mut norm = BatchNorm::<f64>::new(&Scope::new(1), 1);
        let x = Matrix::new(3, 1, vec![1.0, 2.0, 6.0]);
        norm.forward(x.clone(), &Moments::of(x.data(), 1), &mut NormCache::default());
        assert_eq!(norm.batches, 1);
        let scale = 1.0 / (0.9 + 0.7 + batch_norm::EPS).sqrt();
        assert_close(norm.evaluate(x).data(), &[0.7 * scale, 1.7 * scale, 5.7 * scale], 1e-14);
    }
}
