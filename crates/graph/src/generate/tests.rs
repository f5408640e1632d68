//! Generated graphs: the same bytes everywhere, plausible degrees, and a task that neighbours help with.

use rayon::prelude::*;

use super::*;
use crate::csr::CsrView;
use crate::dataset::{LabelView, Subset};
use crate::progress::Silent;

fn spec(preset: &str) -> Spec {
    presets::find(preset).unwrap().spec.clone()
}

fn make_in(folder: &Path, spec: &Spec, threads: usize) -> Manifest {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| make(spec, "x", folder, true, &Silent)).unwrap().manifest
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x");
    for multi_label in [false, true] {
        let spec = Spec { multi_label, ..spec("demo") };
        let one = make_in(&target, &spec, 1);
        for threads in [2, 3] {
            assert_eq!(make_in(&target, &spec, threads), one, "{threads} threads");
        }
        let other = make_in(&target, &Spec { seed: 1, ..spec }, 1);
        assert!(one.files.iter().all(|(file, record)| other.files[file].blake3 != record.blake3));
    }
}

#[test]
fn generated_bytes_do_not_change() {
    // Published results name a preset and a seed: a change here would change them all.
    let folder = tempfile::tempdir().unwrap();
    let manifest = make_in(&folder.path().join("x"), &spec("demo"), 2);
    assert_eq!(manifest.fingerprint, "f09a1bda3851015a481a72dfadaa58df");
    let in_memory = make_in_memory(&spec("demo"), "x", &Silent).unwrap();
    assert_eq!(in_memory.manifest, manifest);
}

#[test]
fn a_generated_dataset_opens_and_records_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x");
    let spec = Spec { multi_label: true, ..spec("demo") };
    let report = make(&spec, "mine", &target, false, &Silent).unwrap();
    let dataset = Dataset::open(&target).unwrap();
    assert_eq!(dataset.manifest, report.manifest);
    assert_eq!((dataset.manifest.name.as_str(), dataset.manifest.metric), ("mine", Metric::MicroF1));
    assert!(matches!(dataset.labels(), LabelView::Multi { classes: 8, .. }));
    assert!(dataset.manifest.source.starts_with("make --nodes 4000 --edges 48000 --features 32 --classes 8"));
    assert!(dataset.manifest.source.ends_with("--seed 0 --multi-label"));
    let train = dataset.split().iter().filter(|&&part| part == Subset::Train as u8).count();
    assert_eq!(train, 2000);
    assert!(make(&spec, "mine", &target, false, &Silent).is_err(), "it exists");
}

#[test]
fn impossible_parameters_are_refused_by_flag() {
    let refuse = |change: fn(&mut Spec), words: &str| {
        let mut spec = spec("demo");
        change(&mut spec);
        let message = graph(&spec, &Silent).err().map_or("it was made".into(), |e| e.to_string());
        assert!(message.contains(words), "{message:?} does not say {words:?}");
    };
    refuse(|s| s.nodes = 0, "--nodes 0: at least 1");
    refuse(|s| s.features = 0, "--features 0: at least 1");
    refuse(|s| s.classes = 0, "--classes 0: at least 1");
    refuse(|s| s.nodes = 5_000_000_000, "ids can number");
    refuse(|s| s.classes = 4001, "--classes 4001: more classes than the 4000 nodes");
    refuse(|s| s.edges = 7, "--edges 7: an odd number");
    refuse(|s| s.edges = 4000 * 4000, "room for 15996000");
    refuse(|s| s.train = 1.5, "--train 1.5: not a fraction");
    refuse(|s| s.val = f64::NAN, "--val NaN");
    refuse(|s| s.val = 0.6, "add up to more than 1");
    refuse(|s| s.nesting = -1.0, "--nesting -1");
    refuse(|s| s.signal = f64::INFINITY, "--signal inf");
    refuse(|s| s.features = usize::MAX, "GiB of memory");
    refuse(|s| (s.nodes, s.edges) = (4_000_000_000, 1 << 60), "GiB of memory");
}

#[test]
fn degrees_vary_and_few_nodes_are_isolated() {
    for (preset, hub) in [("demo", 200), ("small", 300), ("arxiv-like", 600), ("products-like", 1200)] {
        let csr = graph(&spec(preset), &Silent).unwrap();
        let degrees: Vec<u64> = (0..csr.nodes()).map(|v| csr.view().degree(v)).collect();
        let alone = degrees.iter().filter(|&&d| d == 0).count();
        assert!(alone * 50 < csr.nodes(), "{preset}: {alone} isolated nodes");
        assert!(*degrees.iter().max().unwrap() > hub, "{preset}");
    }
}

/// A generated graph in memory.
struct Task {
    csr: Csr,
    labels: Vec<i64>,
    features: Vec<f32>,
    split: Vec<u8>,
    spec: Spec,
}

impl Task {
    fn new(preset: &str) -> Task {
        let spec = spec(preset);
        let blocks = Blocks::new(&spec);
        let csr = edges::draw(&spec, &blocks, &Silent).unwrap();
        let classes = Classes::new(&spec, &blocks);
        let mut features = Vec::new();
        let mut keep = |rows: &[f32]| {
            features.extend_from_slice(rows);
            Ok(())
        };
        write::FeatureSource::stream(&Features::new(&spec, &classes), &mut keep).unwrap();
        let labels = classes.labels();
        let rule = SplitRule::Fraction { train: spec.train, val: spec.val };
        let source = SplitSource { given: Vec::new(), labels: &labels, nodes: spec.nodes, seed: 0 };
        let split = rule.apply(source).unwrap().0.remove(0);
        let write::Labels::Single(labels) = labels else { panic!("presets have one class a node") };
        Task { csr, labels, features, split, spec }
    }

    /// Returns the fraction of test rows of `x` whose nearest class centroid, over training rows, is that of their label.
    fn nearest_centroid(&self, x: &[f32]) -> f64 {
        let cols = self.spec.features;
        let mut centroids = vec![0.0; self.spec.classes * cols];
        let mut counts = vec![0; self.spec.classes];
        for v in (0..self.spec.nodes).filter(|&v| self.split[v] == Subset::Train as u8) {
            let class = self.labels[v] as usize;
            counts[class] += 1;
            let sum = &mut centroids[class * cols..][..cols];
            sum.iter_mut().zip(&x[v * cols..]).for_each(|(s, x)| *s += x);
        }
        for (centroid, &n) in centroids.chunks_mut(cols).zip(&counts) {
            centroid.iter_mut().for_each(|c| *c /= n.max(1) as f32);
        }
        let test: Vec<usize> =
            (0..self.spec.nodes).filter(|&v| self.split[v] == Subset::Test as u8).take(20_000).collect();
        let right = |&&v: &&usize| nearest(&centroids, &x[v * cols..][..cols]) == self.labels[v] as usize;
        test.par_iter().filter(right).count() as f64 / test.len() as f64
    }
}

fn nearest(centroids: &[f32], row: &[f32]) -> usize {
    let distance = |centroid: &[f32]| centroid.iter().zip(row).map(|(c, x)| (c - x) * (c - x)).sum::<f32>();
    let distances = centroids.chunks(row.len()).map(distance);
    distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0
}

/// Returns the mean over a node and its neighbours.
fn smooth(csr: CsrView, x: &[f32], cols: usize) -> Vec<f32> {
    let mut out = x.to_vec();
    out.par_chunks_mut(cols).enumerate().for_each(|(v, row)| {
        for &u in csr.row(v) {
            row.iter_mut().zip(&x[u as usize * cols..]).for_each(|(sum, x)| *sum += x);
        }
        row.iter_mut().for_each(|sum| *sum /= 1.0 + csr.degree(v) as f32);
    });
    out
}

fn homophily(csr: CsrView, labels: &[i64]) -> f64 {
    let same = |v: usize| csr.row(v).iter().filter(|&&u| labels[u as usize] == labels[v]).count();
    (0..csr.nodes()).map(same).sum::<usize>() as f64 / csr.indices.len() as f64
}

/// Compares nearest-centroid classifiers on raw features and on features averaged twice over neighbours.
fn assert_neighbours_help(preset: &str) {
    let task = Task::new(preset);
    let alone = task.nearest_centroid(&task.features);
    let once = smooth(task.csr.view(), &task.features, task.spec.features);
    let twice = smooth(task.csr.view(), &once, task.spec.features);
    let together = task.nearest_centroid(&twice);
    let homophily = homophily(task.csr.view(), &task.labels);
    let found =
        format!("{preset}: alone {alone:.3}, with neighbours {together:.3}, homophily {homophily:.3}");
    assert!((0.3..0.75).contains(&alone), "{found}");
    assert!(together > alone + 0.12 && together < 0.97, "{found}");
    assert!((0.6..0.86).contains(&homophily), "{found}");
}

#[test]
fn neighbours_help_on_demo() {
    assert_neighbours_help("demo");
}

#[test]
fn neighbours_help_on_small() {
    assert_neighbours_help("small");
}

#[test]
fn neighbours_help_on_reddit_like() {
    assert_neighbours_help("reddit-like");
}

#[test]
fn neighbours_help_on_arxiv_like() {
    assert_neighbours_help("arxiv-like");
}

#[test]
fn neighbours_help_on_products_like() {
    assert_neighbours_help("products-like");
}
