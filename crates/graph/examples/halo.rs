//! Quality of a METIS partition of a dataset: `cargo run --release --example halo -- DIR -k 4`
//!
//! Partitions the graph by METIS (k-way, least edge cut) and prints the fraction of cut edges, the halo rows per node and
//! the imbalance. Writes nothing.

#![expect(clippy::print_stdout, reason = "an example that prints is a tool, not a library")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use halograph_graph::partition::{Balance, Layout, Method, Objective, PartitionReport, PartitionSpec};
use halograph_graph::{Dataset, Silent};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, parts) = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dir, "-k", k] => (dir.to_string(), k.parse()?),
        _ => return Err("usage: halo DIR -k PARTS".into()),
    };
    let dataset = Dataset::open(Path::new(&dir))?;
    let spec =
        PartitionSpec { parts, method: Method::Metis(Objective::Cut), balance: Balance::default(), seed: 1 };
    let start = Instant::now();
    let assignment = spec.assign(&dataset, &Silent)?;
    let seconds = start.elapsed().as_secs_f64();
    let PartitionReport { cut_share, alpha, balance, .. } =
        PartitionReport::of(&Layout::of(&dataset, &assignment)?);
    println!("nodes {}  edges {}  parts {parts}", dataset.manifest.nodes, dataset.manifest.edges);
    println!("cut {:.1} %  halo/N {alpha:.3}  balance {:.3}", 100.0 * cut_share, balance.nodes);
    println!("{seconds:.1} s");
    Ok(())
}
