//! Speed-up by a node order on a dataset: `cargo run --release --example order -- DIR`
//!
//! Prints the time to compute the order, and the best time of an aggregation of 64 and of 256 columns in the given order
//! and in the new one. Writes nothing.

#![expect(clippy::print_stdout, reason = "an example that prints is a tool, not a library")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use halograph_graph::Dataset;
use halograph_graph::block::Block;
use halograph_graph::order::{cluster, improves_locality, nested};
use halograph_kernels::aggregate::{Weights, aggregate};

/// Columns of a narrow and of a wide layer.
const WIDTHS: [usize; 2] = [64, 256];
const TIMES: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: order DIR")?;
    let dataset = Dataset::open(Path::new(&dir))?;
    let graph = dataset.graph();
    println!("nodes {}  edges {}", graph.nodes(), graph.indices.len());
    let order = timed("cluster", || cluster(graph));
    println!("improves locality: {}", timed("improves_locality", || improves_locality(graph, &order)));
    let train: Vec<u32> = (0..graph.nodes() as u32).filter(|&v| dataset.split()[v as usize] == 1).collect();
    let layers = timed("nested, 3 layers", || nested(graph, Some(&order), &train, 3));
    println!("rows computed: {:?} from {}", layers.sizes, layers.inputs);
    sums(&timed("given block", || Block::whole(graph)));
    sums(&timed("ordered block", || Block::ordered(graph, &order)));
    Ok(())
}

fn sums(block: &Block) {
    for width in WIDTHS {
        let x = vec![1.0f32; block.sources() * width];
        let mut out = x.clone();
        let sum = || {
            let start = Instant::now();
            aggregate(block.pattern(), Weights::default(), &x, width, &mut out);
            start.elapsed().as_secs_f64()
        };
        let best = std::iter::repeat_with(sum).take(TIMES).fold(f64::MAX, f64::min);
        println!("sum over neighbours, {width} columns: {best:.3} s");
    }
}

fn timed<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    println!("{what}: {:.3} s", start.elapsed().as_secs_f64());
    result
}
