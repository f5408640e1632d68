//! Time and bandwidth of attention on random graphs: fast and naive, forward and backward.
//!
//! `cargo run --release -p halograph-kernels --example attention [MAX_NODES]`

#![expect(clippy::print_stdout, reason = "a program, not a library")]

use std::time::Instant;

use halograph_kernels::attention::{Attention, Mask, Saved};
use halograph_kernels::keyed::Key;
use halograph_kernels::sparse::{Pattern, Transpose};

const HEADS: usize = 4;
const WIDTH: usize = 64;
const PITCH: usize = HEADS * (WIDTH + 1);

struct Graph {
    bounds: Vec<u64>,
    columns: Vec<u32>,
}

impl Graph {
    fn random(nodes: usize, degree: usize) -> Self {
        let key = Key::new(1, "random graph");
        let columns = (0..(nodes * degree) as u64).map(|e| key.below(e, nodes as u64) as u32).collect();
        Graph { bounds: (0..=nodes).map(|v| (v * degree) as u64).collect(), columns }
    }

    fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.bounds, &self.columns)
    }
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let key = Key::new(seed, "noise");
    (0..len as u64).map(|i| 2.0 * key.unit(i) as f32 - 1.0).collect()
}

/// Prints the best time of several runs, and the rate of reading `bytes`.
fn time(name: &str, runs: usize, bytes: usize, mut work: impl FnMut()) {
    let seconds = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let best = (0..runs).map(|_| seconds(&mut work)).fold(f64::INFINITY, f64::min);
    println!("  {name:<28} {:8.1} ms  {:6.1} GB/s", best * 1e3, bytes as f64 / best / 1e9);
}

fn measure(nodes: usize, degree: usize) {
    let graph = Graph::random(nodes, degree);
    let transpose = Transpose::of(graph.pattern(), nodes);
    let (messages, destination) = (noise(2, nodes * PITCH), noise(3, nodes * HEADS));
    let plain = Attention {
        pattern: graph.pattern(),
        messages: &messages,
        destination: &destination,
        first: Some(0),
        heads: HEADS,
        width: WIDTH,
        slope: 0.2,
        mask: None,
    };
    let masked = Attention {
        mask: Some(Mask { key: Key::new(4, "mask"), p: 0.5, rows: None, columns: None }),
        ..plain
    };
    let grad = noise(5, nodes * HEADS * WIDTH);
    let (mut out, mut saved) = (vec![0.0; grad.len()], Saved::default());
    let (mut messages_grad, mut destination_grad) = (vec![0.0; messages.len()], vec![0.0; destination.len()]);
    let bytes = graph.columns.len() * PITCH * 4;
    time("forward, evaluation", 5, bytes, || plain.forward(None, &mut out));
    time("forward, half dropped", 5, bytes, || masked.forward(Some(&mut saved), &mut out));
    time("forward, training", 5, bytes, || plain.forward(Some(&mut saved), &mut out));
    time("backward", 5, bytes, || {
        let forward = (&saved, &out[..]);
        plain.backward(transpose.pattern(), forward, &grad, &mut messages_grad, &mut destination_grad);
    });
    time("backward, half dropped", 5, bytes, || {
        let forward = (&saved, &out[..]);
        masked.backward(transpose.pattern(), forward, &grad, &mut messages_grad, &mut destination_grad);
    });
    time("naive forward", 1, bytes, || plain.forward_naive(Some(&mut saved), &mut out));
    time("naive backward", 1, bytes, || {
        let forward = (&saved, &out[..]);
        plain.backward_naive(transpose.pattern(), forward, &grad, &mut messages_grad, &mut destination_grad);
    });
}

fn main() {
    let max_nodes = std::env::args().nth(1).map_or(usize::MAX, |n| n.parse().expect("a number of nodes"));
    for (nodes, degree) in [(23_000, 100), (245_000, 49)].into_iter().filter(|g| g.0 <= max_nodes) {
        for threads in [1, 2] {
            println!("{nodes} rows, {} entries, {HEADS} x {WIDTH}, {threads} threads", nodes * degree);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| measure(nodes, degree));
        }
    }
}
