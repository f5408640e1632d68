//! Weights of the gradients that a chunk collects from other chunks.
//!
//! A destination chunk reads rows of earlier chunks fresh and those of later chunks from history, which is a constant: a
//! chunk collects gradients only from the chunks after it. At position q of K, counted from 0, these are n = K − 1 − q of
//! the K − 1 others; the last chunk collects nothing. The factor makes up for the rest if every order is equally likely. In
//! a fixed order, the gradients of some edges are always lost.
//!
//! Positions are those of one step: rows of chunks of other steps of an epoch get no gradient, and factors do not make up
//! for that. In expectation, factors cannot make up for paths that return to an earlier chunk: their gradient is always lost.

use crate::config::GradientWeighting;

/// Assumed correlation of the contributions of different chunks.
const CORRELATION: f64 = 0.25;

impl GradientWeighting {
    /// Returns the factor of the gradients that the chunk at `position` (from 0) of a step collects from later chunks in
    /// the backward of an aggregation; gradients within a chunk are not scaled.
    ///
    /// - `doubled`: 2, because a given other chunk is later with probability 1/2.
    /// - `position`: w(n) / m, the least-squares prediction w(n) of the contributions of all K − 1 other chunks from those of n,
    ///   divided by its mean m, so that one aggregation is unbiased. If contributions of chunks correlate by ρ,
    ///   w(n) = (1 + (K − 2) ρ) / (1 + (n − 1) ρ); here ρ = 1/4. m = Σₙ n w(n) / (K (K − 1)) is the probability-weighted sum over
    ///   the positions. ρ = 0 gives doubling, ρ = 1 weights by the inverse probability. With two chunks, all of these are doubling.
    pub fn factor(self, position: usize, step: Predictions) -> f64 {
        let Predictions { chunks, mean } = step;
        debug_assert!(position < chunks);
        match self {
            GradientWeighting::Unscaled => 1.0,
            GradientWeighting::Doubled => 2.0,
            // Without other chunks, or without later ones, nothing is collected.
            GradientWeighting::Position if position + 1 == chunks => 1.0,
            GradientWeighting::Position => prediction(chunks - 1 - position, chunks) / mean,
        }
    }
}

/// The least-squares factors of a step, before they are made unbiased.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predictions {
    chunks: usize,
    /// The expected weight of an edge between two chunks.
    mean: f64,
}

impl Predictions {
    /// Returns the factors of a step of so many chunks. Takes time linear in `chunks`.
    pub fn new(chunks: usize) -> Self {
        Predictions { chunks, mean: mean_prediction(chunks) }
    }
}

/// Returns the least-squares factor for gradients of `later` chunks: 1 if these are all others.
fn prediction(later: usize, chunks: usize) -> f64 {
    (1.0 + (chunks as f64 - 2.0) * CORRELATION) / (1.0 + (later as f64 - 1.0) * CORRELATION)
}

/// Returns the expected weight of an edge between two chunks with the factors of [`prediction`].
fn mean_prediction(chunks: usize) -> f64 {
    if chunks < 2 {
        return 1.0;
    }
    let sum: f64 = (1..chunks).map(|later| later as f64 * prediction(later, chunks)).sum();
    sum / (chunks * (chunks - 1)) as f64
}

#[cfg(test)]
mod tests {
    //! The linear toy of `bench/chunk_gradients`: squared loss, frozen weights, history current, all orders of the chunks.

    use std::f64::consts::TAU;

    use super::*;

    const UNSCALED: GradientWeighting = GradientWeighting::Unscaled;
    const DOUBLED: GradientWeighting = GradientWeighting::Doubled;
    const POSITION: GradientWeighting = GradientWeighting::Position;

    const NODES: usize = 12;
    const WIDTH: usize = 3;
    /// Numbers of graphs for 2, 3, … chunks: fewer where there are more orders.
    const GRAPHS: [u64; 5] = [50, 50, 50, 20, 10];

    type Rows = Vec<[f64; WIDTH]>;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (TAU * self.uniform()).cos()
        }

        fn rows(&mut self, count: usize) -> Rows {
            (0..count).map(|_| std::array::from_fn(|_| self.normal())).collect()
        }
    }

    /// Probabilities of edges within a chunk and between chunks.
    const DENSE: [f64; 2] = [0.5, 0.5];
    const LOCAL: [f64; 2] = [0.9, 0.1];

    struct Toy {
        chunk: Vec<usize>,
        adjacency: Vec<Vec<f64>>,
        weights: Vec<Rows>,
        loss: Rows,
    }

    impl Toy {
        fn new(seed: u64, chunks: usize, layers: usize, edges: [f64; 2]) -> Self {
            let mut random = Random(seed);
            let chunk: Vec<usize> = (0..NODES).map(|node| node * chunks / NODES).collect();
            let mut neighbours = |dst: usize| {
                let mut row: Vec<f64> = (0..NODES)
                    .map(|src| {
                        let draw = random.uniform();
                        let probability = edges[usize::from(chunk[src] != chunk[dst])];
                        f64::from(u8::from(src == dst || draw < probability))
                    })
                    .collect();
                let degree: f64 = row.iter().sum();
                row.iter_mut().for_each(|value| *value /= degree);
                row
            };
            let adjacency: Vec<Vec<f64>> = (0..NODES).map(&mut neighbours).collect();
            let mut rows = random.rows(NODES);
            let weights: Vec<Rows> = (0..layers).map(|_| random.rows(WIDTH)).collect();
            for weight in &weights {
                rows = project(&aggregate(&adjacency, &rows), |i, o| weight[i][o]);
            }
            let targets = random.rows(NODES);
            let loss = rows.iter().zip(&targets).map(|(row, target)| sub(row, target)).collect();
            Toy { chunk, adjacency, weights, loss }
        }

        /// Gradient of the input rows; the edge from `src` to `dst` has weight `scale(src, dst)` in the backward.
        fn gradient(&self, scale: impl Fn(usize, usize) -> f64) -> Rows {
            let mut gradient = self.loss.clone();
            for weight in self.weights.iter().rev() {
                let above = project(&gradient, |i, o| weight[o][i]);
                let back: Vec<Vec<f64>> = (0..NODES)
                    .map(|src| {
                        (0..NODES)
                            .map(|dst| self.adjacency[dst][src] * scale(self.chunk[src], self.chunk[dst]))
                            .collect()
                    })
                    .collect();
                gradient = aggregate(&back, &above);
            }
            gradient
        }

        fn estimate(&self, weights: GradientWeighting, position: &[usize]) -> Rows {
            let step = Predictions::new(position.len());
            self.gradient(|src, dst| match position[src].cmp(&position[dst]) {
                std::cmp::Ordering::Less => weights.factor(position[src], step),
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => 0.0,
            })
        }
    }

    fn aggregate(matrix: &[Vec<f64>], rows: &Rows) -> Rows {
        let sum = |values: &Vec<f64>| {
            let mut sum = [0.0; WIDTH];
            for (value, row) in values.iter().zip(rows) {
                (0..WIDTH).for_each(|column| sum[column] += value * row[column]);
            }
            sum
        };
        matrix.iter().map(sum).collect()
    }

    fn project(rows: &Rows, weight: impl Fn(usize, usize) -> f64) -> Rows {
        let output = |row: &[f64; WIDTH], o| (0..WIDTH).map(|i| row[i] * weight(i, o)).sum();
        rows.iter().map(|row| std::array::from_fn(|o| output(row, o))).collect()
    }

    fn sub(a: &[f64; WIDTH], b: &[f64; WIDTH]) -> [f64; WIDTH] {
        std::array::from_fn(|column| a[column] - b[column])
    }

    fn square(rows: &Rows) -> f64 {
        rows.iter().flatten().map(|value| value * value).sum()
    }

    fn difference(a: &Rows, b: &Rows) -> Rows {
        a.iter().zip(b).map(|(a, b)| sub(a, b)).collect()
    }

    /// All permutations of 0..chunks.
    fn orders(chunks: usize) -> Vec<Vec<usize>> {
        if chunks == 0 {
            return vec![Vec::new()];
        }
        let insert = |order: Vec<usize>| {
            (0..chunks).map(move |place| {
                let mut longer = order.clone();
                longer.insert(place, chunks - 1);
                longer
            })
        };
        orders(chunks - 1).into_iter().flat_map(insert).collect()
    }

    /// Bias and RMS error, relative to the true gradient, over all orders and some graphs.
    fn errors(weights: GradientWeighting, chunks: usize, layers: usize, edges: [f64; 2]) -> [f64; 2] {
        let orders = orders(chunks);
        let (mut bias, mut error, mut whole) = (0.0, 0.0, 0.0);
        for seed in 1..=GRAPHS[chunks - 2] {
            let toy = Toy::new(seed, chunks, layers, edges);
            let truth = toy.gradient(|_, _| 1.0);
            let mut mean = vec![[0.0; WIDTH]; NODES];
            for order in &orders {
                let apart = difference(&toy.estimate(weights, order), &truth);
                error += square(&apart) / orders.len() as f64;
                for (mean, apart) in mean.iter_mut().flatten().zip(apart.iter().flatten()) {
                    *mean += apart / orders.len() as f64;
                }
            }
            bias += square(&mean);
            whole += square(&truth);
        }
        [bias / whole, error / whole].map(f64::sqrt)
    }

    #[test]
    fn one_aggregation_is_unbiased() {
        for chunks in 2..=6 {
            for weights in [DOUBLED, POSITION] {
                let [bias, _] = errors(weights, chunks, 1, DENSE);
                assert!(bias < 1e-12, "{weights:?}, {chunks} chunks: {bias}");
            }
            let [bias, _] = errors(UNSCALED, chunks, 1, DENSE);
            assert!(bias > 0.1, "{chunks} chunks: {bias}");
        }
    }

    /// With two chunks, an unbiased factor has to be 2: the last chunk collects nothing.
    #[test]
    fn two_chunks_are_doubled() {
        assert!((POSITION.factor(0, Predictions::new(2)) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn factors_by_position_have_smaller_error_and_bias_than_doubling() {
        for (layers, chunks) in (2..=4).flat_map(|layers| (3..=6).map(move |chunks| (layers, chunks))) {
            let doubled = errors(DOUBLED, chunks, layers, DENSE);
            let position = errors(POSITION, chunks, layers, DENSE);
            let [bias, error] = [0, 1].map(|i| position[i] / doubled[i]);
            assert!(bias < 1.0 && error < 1.0, "{layers} layers, {chunks} chunks: {bias}, {error}");
        }
    }

    #[test]
    fn factors_by_position_have_smaller_error_where_most_edges_are_within_chunks() {
        for (layers, chunks) in (2..=4).flat_map(|layers| (3..=5).map(move |chunks| (layers, chunks))) {
            let [_, doubled] = errors(DOUBLED, chunks, layers, LOCAL);
            let [_, position] = errors(POSITION, chunks, layers, LOCAL);
            assert!(position < doubled, "{layers} layers, {chunks} chunks: {position}, {doubled}");
        }
    }

    /// RMS error of the mean gradient of two steps, relative to the true gradient: with independent orders, or with an order
    /// and its reverse.
    fn errors_of_two_steps(
        weights: GradientWeighting,
        chunks: usize,
        layers: usize,
        edges: [f64; 2],
    ) -> [f64; 2] {
        let orders = orders(chunks);
        let [bias, error] = errors(weights, chunks, layers, edges);
        let (mut paired, mut whole) = (0.0, 0.0);
        for seed in 1..=GRAPHS[chunks - 2] {
            let toy = Toy::new(seed, chunks, layers, edges);
            let truth = toy.gradient(|_, _| 1.0);
            for order in &orders {
                let reverse: Vec<usize> = order.iter().map(|position| chunks - 1 - position).collect();
                let both = [order, &reverse].map(|order| difference(&toy.estimate(weights, order), &truth));
                let sum: f64 = both[0]
                    .iter()
                    .flatten()
                    .zip(both[1].iter().flatten())
                    .map(|(a, b)| (a + b).powi(2))
                    .sum();
                paired += sum / 4.0 / orders.len() as f64;
            }
            whole += square(&truth);
        }
        [((bias * bias + error * error) / 2.0).sqrt(), (paired / whole).sqrt()]
    }

    #[test]
    fn an_order_and_its_reverse_have_smaller_error_than_two_doubled_steps() {
        for (layers, chunks) in (1..=4).flat_map(|layers| (2..=6).map(move |chunks| (layers, chunks))) {
            for edges in [DENSE, LOCAL] {
                let [independent, paired_doubling] = errors_of_two_steps(DOUBLED, chunks, layers, edges);
                let [_, paired] = errors_of_two_steps(POSITION, chunks, layers, edges);
                assert!(paired < independent, "{layers} layers, {chunks} chunks: {paired}, {independent}");
                // Every edge is fresh in one of the two orders.
                assert!(layers > 1 || paired_doubling < 1e-12, "{chunks} chunks: {paired_doubling}");
            }
        }
    }

    #[test]
    fn later_positions_have_larger_factors() {
        for chunks in [3, 8, 64] {
            let factors: Vec<f64> =
                (0..chunks - 1).map(|position| POSITION.factor(position, Predictions::new(chunks))).collect();
            assert!(factors.is_sorted_by(|a, b| a < b), "{factors:?}");
            assert!(factors[0] > 1.0, "{factors:?}");
        }
        assert_eq!(POSITION.factor(0, Predictions::new(1)), 1.0);
    }
}
