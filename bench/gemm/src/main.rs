//! Rates of dense products by library, in the shapes of training: `cargo run --release [--features openblas] -- THREADS`.
//!
//! `tasks`: the library multiplies on one thread, pieces of 256 rows (or 16 parts of the rows, for a weight's gradient)
//! are shared out by rayon, as halograph does. `own`: the library's own threads. GFLOP/s, best of 5.

use std::time::Instant;

use rayon::prelude::*;

/// `c = a * b` or, with `keep`, `c += a * b`; a is m x k with these strides, b and c are row-major.
type Multiply = fn([usize; 3], &[f32], [isize; 2], &[f32], bool, &mut [f32]);

fn by_gemm([m, k, n]: [usize; 3], a: &[f32], s: [isize; 2], b: &[f32], keep: bool, c: &mut [f32]) {
    let none = gemm::Parallelism::None;
    let beta = if keep { 1.0 } else { 0.0 };
    let (n_, c) = (n as isize, c.as_mut_ptr());
    unsafe {
        gemm::gemm(m, n, k, c, 1, n_, keep, a.as_ptr(), s[1], s[0], b.as_ptr(), 1, n_, beta, 1.0, false, false, false, none)
    }
}

fn by_matrixmultiply([m, k, n]: [usize; 3], a: &[f32], s: [isize; 2], b: &[f32], keep: bool, c: &mut [f32]) {
    let (n_, beta) = (n as isize, if keep { 1.0 } else { 0.0 });
    unsafe { matrixmultiply::sgemm(m, k, n, 1.0, a.as_ptr(), s[0], s[1], b.as_ptr(), n_, 1, beta, c.as_mut_ptr(), n_, 1) }
}

fn by_faer_on([m, k, n]: [usize; 3], a: &[f32], s: [isize; 2], b: &[f32], keep: bool, c: &mut [f32], par: faer::Par) {
    let accum = if keep { faer::Accum::Add } else { faer::Accum::Replace };
    let (a, n_) = (unsafe { faer::MatRef::from_raw_parts(a.as_ptr(), m, k, s[0], s[1]) }, n as isize);
    let b = unsafe { faer::MatRef::from_raw_parts(b.as_ptr(), k, n, n_, 1) };
    let c = unsafe { faer::MatMut::from_raw_parts_mut(c.as_mut_ptr(), m, n, n_, 1) };
    faer::linalg::matmul::matmul(c, accum, a, b, 1.0f32, par);
}

fn by_faer(shape: [usize; 3], a: &[f32], s: [isize; 2], b: &[f32], keep: bool, c: &mut [f32]) {
    by_faer_on(shape, a, s, b, keep, c, faer::Par::Seq);
}

#[cfg(feature = "openblas")]
mod blas {
    #[link(name = "openblas")]
    unsafe extern "C" {
        pub fn openblas_set_num_threads(threads: i32);
        #[rustfmt::skip]
        pub fn cblas_sgemm(order: i32, ta: i32, tb: i32, m: i32, n: i32, k: i32, alpha: f32, a: *const f32, lda: i32,
                           b: *const f32, ldb: i32, beta: f32, c: *mut f32, ldc: i32);
    }
}

#[cfg(feature = "openblas")]
fn by_openblas([m, k, n]: [usize; 3], a: &[f32], s: [isize; 2], b: &[f32], keep: bool, c: &mut [f32]) {
    let [m, k, n] = [m, k, n].map(|x| x as i32);
    let (turned, lda) = if s[1] == 1 { (111, s[0] as i32) } else { (112, s[1] as i32) };
    let beta = if keep { 1.0 } else { 0.0 };
    unsafe { blas::cblas_sgemm(101, turned, 111, m, n, k, 1.0, a.as_ptr(), lda, b.as_ptr(), n, beta, c.as_mut_ptr(), n) }
}

/// Many rows times a small matrix, 256 rows a task.
fn rows_in_tasks(multiply: Multiply, [_, k, n]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    const ROWS: usize = 256;
    c.par_chunks_mut(ROWS * n).zip(a.par_chunks(ROWS * k)).for_each(|(c, a)| {
        multiply([c.len() / n, k, n], a, [k as isize, 1], b, false, c);
    });
}

/// A weight's gradient: 16 parts of the rows, added up.
fn outer_in_tasks(multiply: Multiply, [m, k, n]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    let rows = k.div_ceil(16);
    let parts: Vec<Vec<f32>> = (a.par_chunks(rows * m).zip(b.par_chunks(rows * n)))
        .map(|(a, b)| {
            let mut part = vec![0.0; m * n];
            for (a, b) in a.chunks(1024 * m).zip(b.chunks(1024 * n)) {
                multiply([m, a.len() / m, n], a, [1, m as isize], b, true, &mut part);
            }
            part
        })
        .collect();
    c.fill(0.0);
    parts.iter().for_each(|part| c.iter_mut().zip(part).for_each(|(c, p)| *c += p));
}

fn best(mut work: impl FnMut()) -> f64 {
    work();
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| time(&mut work)).fold(f64::MAX, f64::min)
}

fn main() {
    let threads: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("threads");
    #[cfg(feature = "openblas")]
    unsafe {
        blas::openblas_set_num_threads(1)
    };
    let libraries: &[(&str, Multiply)] = &[
        ("gemm", by_gemm),
        ("matrixmultiply", by_matrixmultiply),
        ("faer", by_faer),
        #[cfg(feature = "openblas")]
        ("OpenBLAS", by_openblas),
    ];
    print!("| m, k, n, {threads} threads |");
    libraries.iter().for_each(|(name, _)| print!(" {name}, tasks |"));
    println!(" faer, own |");
    println!("|---|{}", "---:|".repeat(libraries.len() + 1));
    let tall = [[23_000, 602, 256], [245_000, 100, 256], [245_000, 256, 256], [245_000, 256, 47], [23_000, 64, 64]];
    let outer = [[256, 245_000, 256], [602, 23_000, 256], [256, 23_000, 41]];
    for (shape, is_outer) in tall.map(|s| (s, false)).into_iter().chain(outer.map(|s| (s, true))) {
        let [m, k, n] = shape;
        let (a, b, mut c) = (vec![1.0f32; m * k], vec![1.0f32; k * n], vec![0.0f32; m * n]);
        let rate = |seconds: f64| 2.0 * (m * k * n) as f64 / seconds / 1e9;
        print!("| {}{m}, {k}, {n} |", if is_outer { "Aᵀ " } else { "" });
        let in_tasks = if is_outer { outer_in_tasks } else { rows_in_tasks };
        for &(_, multiply) in libraries {
            print!(" {:.0} |", rate(best(|| in_tasks(multiply, shape, &a, &b, &mut c))));
        }
        let strides = if is_outer { [1, m as isize] } else { [k as isize, 1] };
        let par = if threads > 1 { faer::Par::rayon(threads) } else { faer::Par::Seq };
        println!(" {:.0} |", rate(best(|| by_faer_on(shape, &a, strides, &b, false, &mut c, par))));
    }
}
