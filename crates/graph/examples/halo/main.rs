//! How well a dataset can be cut: `cargo run --release --example halo -- DIR -k 4`
//!
//! Partitions the graph with METIS (k-way, fewest cut edges) and prints what a distributed run would feel: the
//! share of edges cut, halo rows a node, the largest part over the mean.

#![expect(clippy::print_stdout, reason = "an example that prints is a tool, not a library")]

mod measure;

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use halograph_graph::Dataset;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, parts) = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dir, "-k", k] => (dir.to_string(), k.parse()?),
        _ => return Err("usage: halo DIR -k PARTS".into()),
    };
    let dataset = Dataset::open(Path::new(&dir))?;
    let graph = dataset.graph();
    let start = Instant::now();
    let part = measure::partition(graph, parts)?;
    let seconds = start.elapsed().as_secs_f64();
    let found = measure::measure(graph, &part, parts);
    println!("nodes {}  edges {}  parts {parts}", graph.nodes(), graph.indices.len());
    println!("cut {:.1} %  halo/N {:.3}  balance {:.3}", 100.0 * found.cut, found.halo, found.balance);
    println!("{seconds:.1} s");
    Ok(())
}
