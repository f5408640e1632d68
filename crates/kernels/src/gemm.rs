//! Matrix products (GEMM) in the two shapes of layers: a tall matrix times a small one ([`multiply`]), and the
//! gradient of a weight, a sum of outer products over many rows ([`add_outer`]).
//!
//! The tall matrix may be sparse; the products are dense. Products are split into tasks; a task of dense factors calls the
//! single-threaded GEMM of faer. Tasks depend on the shapes only, so
//! the number of threads does not change the result.

mod sparse;

use std::cell::RefCell;
use std::ops::Range;

use half::f16;
use rayon::prelude::*;

use crate::Real;
use crate::buffer::Buffer;
use crate::sparse::SparseRows;
use crate::work::{self, Cost};

/// Rows per task of a product: they and their product fit the cache of a core.
const TASK_ROWS: usize = 256;
/// Rows of a sum of outer products per call of the library.
const OUTER_ROWS: usize = 1024;
/// Maximum number of partial sums of outer products.
const MAX_PARTS: usize = 16;
/// Maximum numbers in all partial sums together.
const MAX_PARTIAL: usize = 1 << 22;
/// Maximum columns of a product per call of the library.
const MAX_COLUMNS: usize = 4096;

/// A borrowed small matrix, row-major or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    /// Row stride and column stride in `data`.
    strides: [usize; 2],
}

impl<'a, T> Mat<'a, T> {
    /// Returns `data` as a row-major `rows` x `cols` matrix.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "length of a {rows} x {cols} matrix");
        Mat { data, rows, cols, strides: [cols, 1] }
    }

    /// Returns the transpose, without copying.
    #[must_use]
    pub fn t(self) -> Self {
        let [r, c] = self.strides;
        Mat { data: self.data, rows: self.cols, cols: self.rows, strides: [c, r] }
    }
}

/// A borrowed tall matrix: row-major, the first `cols` numbers of each row; or sparse.
#[derive(Debug, Clone, Copy)]
pub struct Tall<'a, T> {
    data: Numbers<'a, T>,
    rows: usize,
    cols: usize,
    /// Row stride.
    pitch: usize,
}

#[derive(Debug, Clone, Copy)]
enum Numbers<'a, T> {
    Full(&'a [T]),
    Half(&'a [f16]),
    Sparse(SparseRows<'a, T>),
}

impl<'a, T: Real> Tall<'a, T> {
    /// Returns `data` as a `rows` x `cols` matrix.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::pitched(data, rows, cols, cols)
    }

    /// Returns the first `cols` columns of a matrix with `pitch` columns.
    pub fn pitched(data: &'a [T], rows: usize, cols: usize, pitch: usize) -> Self {
        assert_eq!(data.len(), rows * pitch, "length of {rows} rows of {pitch}");
        assert!(cols <= pitch, "{cols} columns of {pitch}");
        Tall { data: Numbers::Full(data), rows, cols, pitch }
    }

    /// Returns a `rows` x `cols` matrix in half precision. Each task converts its rows.
    pub fn half(data: &'a [f16], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "length of {rows} rows of {cols}");
        Tall { data: Numbers::Half(data), rows, cols, pitch: cols }
    }

    /// Returns a sparse matrix.
    pub fn sparse(data: SparseRows<'a, T>) -> Self {
        let (rows, cols) = (data.rows(), data.cols());
        Tall { data: Numbers::Sparse(data), rows, cols, pitch: cols }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Calls `work` with `count` rows from `first` on, converted to `T`, with row stride `pitch`.
    fn with_rows<R>(&self, first: usize, count: usize, work: impl FnOnce(&[T]) -> R) -> R {
        let run = first * self.pitch..(first + count) * self.pitch;
        match self.data {
            Numbers::Full(data) => work(&data[run]),
            Numbers::Half(data) => with_scratch(run.len(), |scratch| {
                T::widen(&data[run], scratch);
                work(scratch)
            }),
            Numbers::Sparse(_) => unreachable!("sparse rows have products of their own"),
        }
    }
}

thread_local! {
    /// Memory of a thread for converted rows.
    static SCRATCH: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `len` numbers of thread-local memory.
fn with_scratch<T: Real, R>(len: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let numbers = (len * size_of::<T>()).div_ceil(size_of::<f64>());
        if scratch.len() < numbers {
            scratch.resize(numbers, 0.0);
        }
        work(&mut bytemuck::cast_slice_mut(scratch)[..len])
    })
}

/// Returns the cost of reading a row of `width` numbers for every stored value of `x`.
fn sparse_cost<T>(x: SparseRows<T>, width: usize) -> Cost {
    let row = width * size_of::<T>();
    Cost::gather(x.pattern(), row, x.cols() * row, x.stored() * size_of::<T>() + x.rows() * row)
}

/// Initial value of an output, to which a product is added.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a, T> {
    /// 0: the output is overwritten, NaN included.
    Zero,
    /// The previous content of the output.
    Kept,
    /// The same row for all rows, e.g. a bias.
    Row(&'a [T]),
}

/// Computes `c = start + alpha * a * b`. Rows of `c` have a stride of `pitch`; columns from `b.cols` on are unchanged.
pub fn multiply<T: Real>(alpha: T, a: Tall<T>, b: Mat<T>, start: Start<T>, c: &mut [T], pitch: usize) {
    add_products(alpha, &[(a, b)], start, c, pitch);
}

/// Computes `c = start + a_1 * b_1 + a_2 * b_2`, as two calls of [`multiply`] would, with the same rounding. `c` is written
/// to memory once.
pub fn multiply_two<T: Real>(factors: [(Tall<T>, Mat<T>); 2], start: Start<T>, c: &mut [T], pitch: usize) {
    add_products(T::one(), &factors, start, c, pitch);
}

/// Computes `c = start + alpha * Σ a * b`. A task completes its rows of `c` while they are in the cache of a core.
fn add_products<T: Real>(
    alpha: T,
    factors: &[(Tall<T>, Mat<T>)],
    start: Start<T>,
    c: &mut [T],
    pitch: usize,
) {
    let (rows, cols) = (factors[0].0.rows, factors[0].1.cols);
    for (a, b) in factors {
        assert_eq!(a.cols, b.rows, "inner dimensions of a product");
        assert_eq!([a.rows, b.cols], [rows, cols], "size of a product");
    }
    assert!(cols <= pitch && c.len() == rows * pitch, "length of the output");
    if cols == 0 {
        return;
    }
    if factors.iter().any(|(a, _)| matches!(a.data, Numbers::Sparse(_))) {
        return add_one_by_one(alpha, factors, start, c, pitch);
    }
    let inner = factors.iter().map(|(a, _)| a.cols).sum();
    let _work = work::begin("GEMM", || Cost::product([rows, inner, cols], size_of::<T>()));
    c.par_chunks_mut(TASK_ROWS * pitch).enumerate().for_each(|(task, c)| {
        let rows = c.len() / pitch;
        let mut accumulate = initialize(start, c, cols, pitch);
        for (a, b) in factors {
            a.with_rows(task * TASK_ROWS, rows, |a_rows| {
                let strides = [[a.pitch, 1], b.strides, [pitch, 1]];
                product([rows, a.cols, cols], alpha, [a_rows, b.data], accumulate, c, strides);
            });
            accumulate = true;
        }
    });
}

/// As [`add_products`], of factors of which some are sparse.
fn add_one_by_one<T: Real>(
    alpha: T,
    factors: &[(Tall<T>, Mat<T>)],
    mut start: Start<T>,
    c: &mut [T],
    pitch: usize,
) {
    for &(a, b) in factors {
        match a.data {
            Numbers::Sparse(x) => {
                let _work = work::begin("sparse product", || sparse_cost(x, b.cols));
                sparse::multiply(alpha, x, b, start, c, pitch);
            }
            _ => add_products(alpha, &[(a, b)], start, c, pitch),
        }
        start = Start::Kept;
    }
}

/// Writes the initial value to `c`. Returns whether the product must be added to it, i.e. `start` is not zero.
fn initialize<T: Real>(start: Start<T>, c: &mut [T], cols: usize, pitch: usize) -> bool {
    match start {
        Start::Zero => return false,
        Start::Kept => {}
        Start::Row(row) => c.chunks_exact_mut(pitch).for_each(|c| c[..cols].copy_from_slice(row)),
    }
    true
}

/// Computes `sum += alpha * gᵀ x` (`g.cols` x `x.cols`): the gradient of W in `x * Wᵀ`, where `g` is the gradient of
/// the product. Allocates partial sums if there are many rows.
///
/// # Panics
/// If `g` is in half precision or sparse.
pub fn add_outer<T: Real>(alpha: T, g: Tall<T>, x: Tall<T>, sum: &mut [T]) {
    assert_eq!(g.rows, x.rows, "equal numbers of rows");
    assert_eq!(sum.len(), g.cols * x.cols, "length of the sum");
    if sum.is_empty() {
        return;
    }
    if let Numbers::Sparse(rows) = x.data {
        let _work = work::begin("sparse weight gradient", || sparse_cost(rows, g.cols));
        let Numbers::Full(data) = g.data else { panic!("a gradient in half precision") };
        let g = sparse::Gradient { data, columns: g.cols, pitch: g.pitch };
        return sparse::add_outer(alpha, g, rows, sum);
    }
    let _work = work::begin("weight gradient GEMM", || Cost::outer(g.rows, [g.cols, x.cols], size_of::<T>()));
    let parts = partial_sums(g.rows, sum.len());
    if parts == 1 {
        return outer_blocks(alpha, g, x, 0..g.rows, 1, sum);
    }
    let mut partial = Buffer::unspecified(parts * sum.len());
    let rows = g.rows.div_ceil(parts);
    partial.par_chunks_mut(sum.len()).enumerate().for_each(|(part, partial)| {
        partial.fill(T::zero());
        let rows = (part * rows).min(g.rows)..((part + 1) * rows).min(g.rows);
        outer_blocks(alpha, g, x, rows, parts, partial);
    });
    let len = sum.len();
    sum.par_chunks_mut(1 << 12).enumerate().for_each(|(i, sum)| {
        for partial in partial.chunks_exact(len) {
            sum.iter_mut().zip(&partial[i << 12..]).for_each(|(s, &p)| *s += p);
        }
    });
}

/// Returns the number of partial sums that [`add_outer`] allocates for this many rows and numbers in the sum; 1: none.
pub fn partial_sums(rows: usize, sum: usize) -> usize {
    if rows < 2 * OUTER_ROWS { 1 } else { (MAX_PARTIAL / sum.max(1)).clamp(1, MAX_PARTS) }
}

/// Adds the outer products of `rows`, one of `parts` partial sums. A task is a block of columns of `g`; blocks are
/// smaller if there are fewer parts, so that there are enough tasks.
fn outer_blocks<T: Real>(alpha: T, g: Tall<T>, x: Tall<T>, rows: Range<usize>, parts: usize, sum: &mut [T]) {
    let Numbers::Full(g_data) = g.data else { panic!("a gradient in half precision") };
    let width = (g.cols * parts).div_ceil(MAX_PARTS).clamp(16, TASK_ROWS);
    sum.par_chunks_mut(width * x.cols).enumerate().for_each(|(block, sum)| {
        let (from, columns) = (block * width, sum.len() / x.cols);
        for first in rows.clone().step_by(OUTER_ROWS) {
            let count = OUTER_ROWS.min(rows.end - first);
            let g_rows = &g_data[first * g.pitch + from..(first + count) * g.pitch];
            x.with_rows(first, count, |x_rows| {
                let strides = [[1, g.pitch], [x.pitch, 1], [x.cols, 1]];
                product([columns, count, x.cols], alpha, [g_rows, x_rows], true, sum, strides);
            });
        }
    });
}

/// Multiplies in blocks of columns, which bounds the memory that the library packs a factor into.
fn product<T: Real>(
    [m, k, n]: [usize; 3],
    alpha: T,
    [a, b]: [&[T]; 2],
    accumulate: bool,
    c: &mut [T],
    strides: [[usize; 2]; 3],
) {
    for first in (0..n).step_by(MAX_COLUMNS) {
        let columns = MAX_COLUMNS.min(n - first);
        let b = b.get(first * strides[1][1]..).unwrap_or_default();
        call([m, k, columns], alpha, [a, b], accumulate, &mut c[first..], strides);
    }
}

/// Calls the library, after checking that all elements lie within their slices.
fn call<T: Real>(
    shape: [usize; 3],
    alpha: T,
    factors: [&[T]; 2],
    accumulate: bool,
    c: &mut [T],
    strides: [[usize; 2]; 3],
) {
    let [m, k, n] = shape;
    if m == 0 || n == 0 {
        return;
    }
    let fits = |len: usize, [rows, cols]: [usize; 2], [r, s]: [usize; 2]| {
        rows == 0 || cols == 0 || (rows - 1) * r + (cols - 1) * s < len
    };
    assert!(
        fits(factors[0].len(), [m, k], strides[0])
            && fits(factors[1].len(), [k, n], strides[1])
            && fits(c.len(), [m, n], strides[2])
            && (strides[2][0] >= n && strides[2][1] == 1),
        "elements of a product outside of its slices"
    );
    // SAFETY: by the assertion, all elements lie inside their slices and those of C are distinct; C is borrowed
    // mutably.
    unsafe {
        T::multiply(
            shape,
            alpha,
            factors.map(<[T]>::as_ptr),
            accumulate,
            c.as_mut_ptr(),
            strides.map(|s| s.map(|x| x as isize)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, noise};

    /// Computes `c += alpha * a * b` by three loops; `b(l, j)` returns an element of b.
    fn naive(alpha: f64, [m, k, n]: [usize; 3], a: &[f64], b: impl Fn(usize, usize) -> f64, c: &mut [f64]) {
        for i in 0..m {
            for j in 0..n {
                c[i * n + j] += alpha * (0..k).map(|l| a[i * k + l] * b(l, j)).sum::<f64>();
            }
        }
    }

    const SHAPES: [[usize; 3]; 6] = [[1, 1, 1], [3, 5, 2], [600, 17, 33], [4, 0, 3], [0, 3, 2], [257, 3, 1]];

    #[test]
    fn products_match_three_loops_for_every_start() {
        for [m, k, n] in SHAPES {
            let (a, b) = (noise::<f64>(1, m * k), noise::<f64>(2, k * n));
            let (before, row) = (noise::<f64>(3, m * n), noise::<f64>(4, n));
            for start in [Start::Zero, Start::Kept, Start::Row(&row)] {
                let first = |i: usize| match start {
                    Start::Zero => 0.0,
                    Start::Kept => before[i],
                    Start::Row(row) => row[i % n],
                };
                let mut want: Vec<f64> = (0..m * n).map(first).collect();
                naive(0.7, [m, k, n], &a, |l, j| b[l * n + j], &mut want);
                let mut got = before.clone();
                if matches!(start, Start::Zero | Start::Row(_)) {
                    got.fill(f64::NAN);
                }
                multiply(0.7, Tall::new(&a, m, k), Mat::new(&b, k, n), start, &mut got, n);
                assert_close(&got, &want, 1e-12);
            }
            let mut want = vec![0.0; m * n];
            naive(1.0, [m, k, n], &a, |l, j| b[j * k + l], &mut want);
            let mut got = vec![f64::NAN; m * n];
            multiply(1.0, Tall::new(&a, m, k), Mat::new(&b, n, k).t(), Start::Zero, &mut got, n);
            assert_close(&got, &want, 1e-12);
        }
    }

    #[test]
    fn two_products_in_one_pass_have_the_bits_of_two_calls() {
        let (m, n) = (600, 33);
        for [k1, k2] in [[17, 5], [0, 4], [4, 0]] {
            let (a1, b1) = (noise::<f32>(1, m * k1), noise::<f32>(2, k1 * n));
            let (b2, row) = (noise::<f32>(4, n * k2), noise::<f32>(5, n));
            let a2: Vec<f16> = noise::<f32>(3, m * k2).into_iter().map(f16::from_f32).collect();
            let first = (Tall::new(&a1, m, k1), Mat::new(&b1, k1, n));
            let second = (Tall::half(&a2, m, k2), Mat::new(&b2, n, k2).t());
            let mut want = vec![f32::NAN; m * n];
            multiply(1.0, first.0, first.1, Start::Row(&row), &mut want, n);
            multiply(1.0, second.0, second.1, Start::Kept, &mut want, n);
            let mut got = vec![f32::NAN; m * n];
            multiply_two([first, second], Start::Row(&row), &mut got, n);
            assert_eq!(got, want);
        }
    }

    #[test]
    fn columns_after_the_product_are_unchanged() {
        let (a, b) = (noise::<f64>(1, 300 * 5), noise::<f64>(2, 3 * 4));
        let mut got = vec![9.0; 300 * 6];
        multiply(1.0, Tall::pitched(&a, 300, 3, 5), Mat::new(&b, 3, 4), Start::Row(&[1.0; 4]), &mut got, 6);
        for r in 0..300 {
            assert_eq!(got[r * 6 + 4..(r + 1) * 6], [9.0, 9.0]);
            let want: Vec<f64> =
                (0..4).map(|j| 1.0 + (0..3).map(|l| a[r * 5 + l] * b[l * 4 + j]).sum::<f64>()).collect();
            assert_close(&got[r * 6..r * 6 + 4], &want, 1e-14);
        }
    }

    #[test]
    fn outer_products_match_loops_for_few_and_many_rows() {
        for rows in [0, 1, 700, 5000] {
            let (g, x) = (noise::<f64>(1, rows * 4), noise::<f64>(2, rows * 3));
            let (mut got, mut want) = (vec![1.0; 6], vec![1.0; 6]);
            // Only the first two columns of g.
            add_outer(0.5, Tall::pitched(&g, rows, 2, 4), Tall::new(&x, rows, 3), &mut got);
            for r in 0..rows {
                (0..6).for_each(|i| want[i] += 0.5 * g[r * 4 + i / 3] * x[r * 3 + i % 3]);
            }
            assert_close(&got, &want, 1e-11);
        }
    }

    #[test]
    fn wide_products_are_split_into_blocks_of_columns() {
        let (rows, k, n) = (3, 2, MAX_COLUMNS + 5);
        let (a, b) = (noise::<f64>(1, rows * k), noise::<f64>(2, k * n));
        let mut want = vec![0.0; rows * n];
        naive(1.0, [rows, k, n], &a, |l, j| b[l * n + j], &mut want);
        let mut got = vec![f64::NAN; rows * n];
        multiply(1.0, Tall::new(&a, rows, k), Mat::new(&b, k, n), Start::Zero, &mut got, n);
        assert_close(&got, &want, 1e-13);

        let mut sum = vec![0.0; k * n];
        add_outer(1.0, Tall::new(&a, rows, k), Tall::new(&want, rows, n), &mut sum);
        let mut transposed = vec![0.0; n * k];
        add_outer(1.0, Tall::new(&want, rows, n), Tall::new(&a, rows, k), &mut transposed);
        let transposed: Vec<f64> = (0..k * n).map(|i| transposed[i % n * k + i / n]).collect();
        assert_close(&transposed, &sum, 1e-12);
        let corner: f64 = (0..rows).map(|r| a[r * k] * want[(r + 1) * n - 1]).sum();
        assert_close(&[sum[n - 1]], &[corner], 1e-12);
    }

    #[test]
    fn half_precision_matches_converted_rows() {
        let (rows, cols) = (3000, 7);
        let half: Vec<f16> = noise::<f32>(1, rows * cols).into_iter().map(f16::from_f32).collect();
        let full: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        let (half, full) = (Tall::half(&half, rows, cols), Tall::new(&full, rows, cols));
        let b = noise::<f32>(2, cols * 2);
        let [got, want] = [half, full].map(|x| {
            let mut c = vec![f32::NAN; rows * 2];
            multiply(1.0, x, Mat::new(&b, cols, 2), Start::Zero, &mut c, 2);
            let mut sum = vec![0.0; 2 * cols];
            add_outer(1.0, Tall::new(&c, rows, 2), x, &mut sum);
            (c, sum)
        });
        assert_eq!(got, want);
    }

    #[test]
    fn single_precision_matches_double() {
        let (m, k, n) = (140, 40, 9);
        let (a, b) = (noise::<f64>(4, m * k), noise::<f64>(5, k * n));
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let (a32, b32) = (narrow(&a), narrow(&b));
        let (mut got, mut want) = (vec![f32::NAN; m * n], vec![f64::NAN; m * n]);
        multiply(1.0, Tall::new(&a32, m, k), Mat::new(&b32, k, n), Start::Zero, &mut got, n);
        multiply(1.0, Tall::new(&a, m, k), Mat::new(&b, k, n), Start::Zero, &mut want, n);
        let got: Vec<f64> = got.iter().map(|&x| x as f64).collect();
        assert_close(&got, &want, 1e-5);
    }
}
