//! Partitions of real graphs.
//!
//! Set `HALOGRAPH_TEST_DATA` to the folder that holds them; without it these tests are skipped with a message.

use halograph_graph::import::{ImportFormat, ImportOptions, import};
use halograph_graph::partition::{
    Balance, Layout, Method, Objective, Origin, PartitionReport, PartitionSpec, Shard, assignment_for, write,
};
use halograph_graph::{Dataset, Silent};

fn imported(name: &str) -> Option<(tempfile::TempDir, Dataset)> {
    let source = halograph_testing::real_data(name)?;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join(name);
    import(&ImportFormat::Planetoid, &source, &out, &ImportOptions::default(), &Silent).unwrap();
    let dataset = Dataset::open(&out).unwrap();
    Some((dir, dataset))
}

#[test]
fn the_halo_of_pubmed_is_close_to_published_values() {
    let Some((_dir, pubmed)) = imported("pubmed") else { return };
    // Halo rows of METIS partitions by DGL, published with an implementation of PipeGCN.
    for (parts, published) in [(2, 2169.0), (4, 3890.0), (8, 7679.0)] {
        for objective in [Objective::Volume, Objective::Cut] {
            let method = Method::Metis(objective);
            let spec = PartitionSpec { parts, method, balance: Balance::default(), seed: 0 };
            let assignment = assignment_for(&pubmed, &spec, &Silent).unwrap();
            let report = PartitionReport::of(&Layout::of(&pubmed, &assignment).unwrap());
            let ratio = report.halo as f64 / published;
            assert!(ratio < 1.25, "{parts} parts, {objective:?}: {} halo rows", report.halo);
            assert!(report.balance.nodes < 1.05, "{parts} parts: {:?}", report.balance);
        }
    }
}

#[test]
fn the_shards_of_cora_hold_the_whole_graph() {
    let Some((dir, cora)) = imported("cora") else { return };
    let spec = PartitionSpec {
        parts: 5,
        method: Method::Stream,
        balance: Balance { edges: true, train: true },
        seed: 7,
    };
    let assignment = assignment_for(&cora, &spec, &Silent).unwrap();
    let layout = Layout::of(&cora, &assignment).unwrap();
    let shards = dir.path().join("shards");
    let written = write(&shards, false, &layout, &Origin::from(&spec), &Silent).unwrap();
    let opened: Vec<Shard> = (0..5).map(|part| Shard::open(&shards, part).unwrap()).collect();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    for (shard, size) in opened.iter().zip(&written.report.sizes) {
        assert_eq!((shard.owned() as u64, (shard.rows() - shard.owned()) as u64), (size.nodes, size.halo));
        let [mut row_features, mut expected] = [vec![0.0; 1433], vec![0.0; 1433]];
        for (row, &v) in shard.ids()[..shard.owned()].iter().enumerate() {
            edges.extend(shard.edges().row(row).iter().map(|&column| (v, shard.ids()[column as usize])));
            shard.features().read_row(row, &mut row_features).unwrap();
            cora.features().read_row(v as usize, &mut expected).unwrap();
            assert_eq!(row_features, expected);
        }
    }
    edges.sort_unstable();
    let graph = cora.graph();
    let all = (0..graph.nodes()).flat_map(|v| graph.row(v).iter().map(move |&u| (v as u32, u)));
    assert!(edges.into_iter().eq(all));
}
