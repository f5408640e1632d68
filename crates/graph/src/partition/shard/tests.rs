//! Shards against a brute-force reference, in memory and on disk, and errors of damaged ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::manifest::{ARRAYS, MANIFEST, SPARSE, ShardManifest, WEIGHTS};
use super::*;
use crate::dataset::arrays::tests::copied;
use crate::dataset::{Dataset, LABEL, Labels, SPLIT};
use crate::io::npy::{Element, FileRecord, Writer};
use crate::partition::testing::{Kind, Toy, communities};
use crate::partition::{
    Assignment, Balance, Layout, Method, Objective, Origin, PartitionSpec, assignment_for, folder, write,
};
use crate::progress::Silent;

/// Returns the in-neighbours of `v`.
fn sources(dataset: &Dataset, v: u32) -> BTreeSet<u32> {
    dataset.graph().row(v as usize).iter().copied().collect()
}

/// Returns distances by relaxation until nothing changes.
fn slow_distances(dataset: &Dataset) -> Vec<u8> {
    let labelled = |v: usize| match dataset.labels() {
        LabelView::Single(classes) => classes[v] >= 0,
        LabelView::Multi { .. } => true,
    };
    let nodes = dataset.split().len();
    let start = |v| if dataset.split()[v] == 1 && labelled(v) { 0 } else { u8::MAX };
    let mut distance: Vec<u8> = (0..nodes).map(start).collect();
    for _ in 0..nodes {
        for v in 0..nodes {
            for u in sources(dataset, v as u32) {
                distance[u as usize] = distance[u as usize].min(distance[v].saturating_add(1));
            }
        }
    }
    distance
}

fn slow_degree(dataset: &Dataset, v: u32, stage: Subgraph) -> u32 {
    let within = |v: u32| {
        let split = dataset.split()[v as usize];
        stage == Subgraph::All || split == 1 || stage == Subgraph::TrainVal && split == 2
    };
    let counted = sources(dataset, v).into_iter().filter(|&u| u != v && within(u)).count();
    if within(v) { counted as u32 } else { 0 }
}

/// Returns the ids of the owned and halo rows of a part without a locality order.
fn slow_ids(dataset: &Dataset, of: &[u32], part: u32) -> (Vec<u32>, Vec<u32>) {
    let owned: Vec<u32> = (0..of.len() as u32).filter(|&v| of[v as usize] == part).collect();
    let all: BTreeSet<u32> = owned.iter().flat_map(|&v| sources(dataset, v)).collect();
    let mut halo: Vec<u32> = all.into_iter().filter(|&u| of[u as usize] != part).collect();
    halo.sort_by_key(|&u| (of[u as usize], u));
    (owned, halo)
}

/// Compares all shards of a dataset with the reference.
fn assert_matches_reference(dataset: &Dataset, of: &[u32], shards: &[Shard]) {
    let distance = slow_distances(dataset);
    let mut edges = Vec::new();
    for (part, shard) in shards.iter().enumerate() {
        let (owned, halo) = slow_ids(dataset, of, part as u32);
        assert_eq!((shard.part(), shard.owned()), (part as u32, owned.len()));
        assert_eq!(shard.ids(), [&owned[..], &halo].concat());
        for (row, &v) in shard.ids().iter().enumerate() {
            assert_eq!(shard.split()[row], dataset.split()[v as usize]);
            assert_eq!(shard.distance()[row], distance[v as usize]);
            for stage in [Subgraph::All, Subgraph::Train, Subgraph::TrainVal] {
                assert_eq!(shard.degrees(stage)[row], slow_degree(dataset, v, stage), "{stage:?} of {v}");
            }
        }
        for (row, &v) in owned.iter().enumerate() {
            let columns = shard.edges().row(row);
            assert!(columns.is_sorted());
            let local = columns.iter().filter(|&&column| (column as usize) < owned.len()).count();
            assert_eq!(shard.local_edges(row), local);
            edges.extend(columns.iter().map(|&column| (shard.ids()[column as usize], v)));
            assert_own_data(dataset, shard, row, v);
        }
        assert_weights(dataset, shard);
        for (owner, other) in shards.iter().enumerate().filter(|(owner, _)| *owner != part) {
            let rows = shard.rows_of(owner as u32);
            let homes = shard.homes(owner as u32).iter().map(|&home| other.ids()[home as usize]);
            assert_eq!(homes.collect::<Vec<_>>(), shard.ids()[rows]);
        }
        assert!(shard.homes(part as u32).is_empty());
        assert_eq!(shard.partition(), shards[0].partition());
    }
    let all = (0..of.len() as u32).flat_map(|v| sources(dataset, v).into_iter().map(move |u| (u, v)));
    edges.sort_unstable();
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    assert_eq!(edges, all, "every edge is in one shard");
    if let Some(shard) = shards.first() {
        let whole = shard.partition();
        assert_eq!(whole.training, distance.iter().filter(|&&d| d == 0).count() as u64);
        let count = |d: usize| distance.iter().filter(|&&of| of as usize == d).count() as u64;
        assert!((0..256).all(|d| whole.distances[d] == count(d)));
        assert_eq!((&whole.dataset, whole.parts as usize), (&dataset.manifest, shards.len()));
    }
}

/// Compares the weights of edges and their sums with the dataset.
fn assert_weights(dataset: &Dataset, shard: &Shard) {
    let Some(weights) = dataset.edge_weights() else {
        assert!(shard.edge_weights().is_none() && shard.in_weights(Subgraph::All).is_none());
        return;
    };
    let weight = |u: u32, v: u32| {
        let row = dataset.graph().indptr[v as usize] as usize..;
        weights[row.start + dataset.graph().row(v as usize).iter().position(|&w| w == u).unwrap()]
    };
    let (ids, found) = (shard.ids(), shard.edge_weights().unwrap());
    for row in 0..shard.owned() {
        let first = shard.edges().indptr[row] as usize;
        for (k, &column) in shard.edges().row(row).iter().enumerate() {
            assert_eq!(found[first + k], weight(ids[column as usize], ids[row]));
        }
    }
    for stage in [Subgraph::All, Subgraph::Train, Subgraph::TrainVal] {
        for (&v, sum) in ids.iter().zip(shard.in_weights(stage).unwrap()) {
            let within = |v: u32| stage.holds(dataset.split()[v as usize]);
            let counted = sources(dataset, v).into_iter().filter(|&u| within(u) && within(v));
            let (own, others): (Vec<u32>, Vec<u32>) = counted.partition(|&u| u == v);
            let total: f64 = others.into_iter().map(|u| f64::from(weight(u, v))).sum();
            assert_eq!(sum.neighbors(), total, "{stage:?} of {v}");
            assert_eq!(sum.own(), own.first().map(|&u| f64::from(weight(u, v))), "{stage:?} of {v}");
        }
    }
}

/// Compares label and features of an owned row with the dataset.
fn assert_own_data(dataset: &Dataset, shard: &Shard, row: usize, v: u32) {
    let v = v as usize;
    match (shard.label(row), dataset.labels()) {
        (Label::Class(class), LabelView::Single(classes)) => assert_eq!(class, classes[v]),
        (Label::Flags(found), LabelView::Multi { flags, .. }) => assert_eq!(found, &flags[2 * v..2 * v + 2]),
        _ => panic!("labels of another kind"),
    }
    let mut features = [0.0; 3];
    let stored = shard.stored_rows().map_or(row, |rows| rows[row] as usize);
    shard.features().read_row(stored, &mut features).unwrap();
    assert_eq!(features, [v as f32, v as f32 + 0.5, -(v as f32)]);
}

fn cut_all(dataset: &Dataset, assignment: &Assignment) -> Vec<Shard> {
    let layout = Layout::of(dataset, assignment).unwrap();
    (0..assignment.parts()).map(|part| layout.cut(part).unwrap()).collect()
}

prop_compose! {
    fn toys()(nodes in 0usize..14)(
        split in proptest::collection::vec(0u8..4, nodes),
        edges in proptest::collection::vec([0..nodes.max(1) as i64, 0..nodes.max(1) as i64], 0..=40 * nodes.min(1)),
        nodes in Just(nodes),
        directed in any::<bool>(),
        multi_label in any::<bool>(),
        half in any::<bool>(),
        sparse in any::<bool>(),
        weighted in any::<bool>(),
    ) -> Toy {
        Toy::like(nodes, &edges, &split, Kind { directed, multi_label, half, sparse, weighted })
    }
}

impl std::fmt::Debug for Toy {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let dataset = self.dataset();
        let graph = dataset.graph();
        write!(f, "{:?} {:?} {:?}", graph.indptr, graph.indices, dataset.split())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn shards_match_the_reference(
        toy in toys(),
        parts in prop_oneof![1u32..=8, Just(20)],
        seed in proptest::collection::vec(0u32..1000, 14),
    ) {
        let dataset = toy.dataset();
        let of: Vec<u32> = seed[..toy.nodes()].iter().map(|x| x % parts).collect();
        let assignment = Assignment::new(parts, of.clone()).unwrap();
        assert_matches_reference(&dataset, &of, &cut_all(&dataset, &assignment));
    }
}

/// Twelve vertices in three parts, one of them empty, on disk.
fn on_disk(kind: Kind) -> (Toy, Assignment, tempfile::TempDir, PathBuf) {
    let edges: Vec<[i64; 2]> = (0..12).flat_map(|v| [[v, (v + 1) % 12], [v, (v + 5) % 12]]).collect();
    let split: Vec<u8> = (0..12).map(|v| [1, 0, 2, 3][v % 4]).collect();
    let toy = Toy::like(12, &edges, &split, kind);
    let of = (0..12).map(|v| [0, 2, 2][v % 3]).collect();
    let assignment = Assignment::new(3, of).unwrap();
    let dataset = toy.dataset();
    let target = tempfile::tempdir().unwrap();
    let shards = target.path().join("shards");
    let layout = Layout::of(&dataset, &assignment).unwrap();
    write(&shards, false, &layout, &Origin::imported(), &Silent).unwrap();
    drop(layout);
    (toy, assignment, target, shards)
}

const PLAIN: Kind = Kind { directed: true, multi_label: false, half: false, sparse: false, weighted: true };

const SPARSE_FEATURES: Kind = Kind { sparse: true, ..PLAIN };
const UNDIRECTED: Kind =
    Kind { directed: false, multi_label: true, half: true, sparse: false, weighted: false };
const KINDS: [Kind; 4] = [PLAIN, SPARSE_FEATURES, UNDIRECTED, Kind { sparse: true, ..UNDIRECTED }];

#[test]
fn a_dataset_in_memory_is_cut_like_one_on_disk() {
    for kind in KINDS {
        let (toy, assignment, _target, shards) = on_disk(kind);
        let mut arrays = copied(&toy.dataset());
        // In a toy, nodes without a label may be in the split, which a dataset in memory refuses.
        if let Labels::Single(labels) = &mut arrays.labels {
            arrays.split.iter_mut().zip(labels).filter(|(_, label)| **label < 0).for_each(|(of, _)| *of = 0);
        }
        let dataset = Dataset::from_arrays(arrays).unwrap();
        let cut = cut_all(&dataset, &assignment);
        assert_matches_reference(&dataset, assignment.of(), &cut);
        assert_eq!(cut[0].partition().layout, Shard::open(&shards, 0).unwrap().partition().layout);
        let method = Method::Metis(Objective::Volume);
        let spec = PartitionSpec { parts: 2, method, balance: Balance::default(), seed: 0 };
        let found = assignment_for(&dataset, &spec, &Silent).unwrap();
        assert_eq!(found, assignment_for(&toy.dataset(), &spec, &Silent).unwrap());
    }
}

#[test]
fn shards_on_disk_equal_those_in_memory() {
    for kind in KINDS {
        let (toy, assignment, _target, shards) = on_disk(kind);
        let dataset = toy.dataset();
        let opened: Vec<Shard> = (0..3).map(|part| Shard::open(&shards, part).unwrap()).collect();
        assert_matches_reference(&dataset, assignment.of(), &opened);
        for (cut, opened) in cut_all(&dataset, &assignment).iter().zip(&opened) {
            assert_eq!(cut.edges().indptr, opened.edges().indptr);
            assert_eq!(cut.edges().indices, opened.edges().indices);
        }
        let kept = Assignment::read(&shards.join(folder::ASSIGNMENT), 12, 3).unwrap();
        assert_eq!(kept, assignment);
        let text = fs::read_to_string(shards.join(folder::MANIFEST)).unwrap();
        let manifest: folder::PartitionManifest = serde_json::from_str(&text).unwrap();
        assert_eq!((manifest.parts, &manifest.layout), (3, &opened[0].partition().layout));
    }
}

#[test]
fn a_shard_needs_only_its_own_folder() {
    let (toy, assignment, target, shards) = on_disk(PLAIN);
    let alone = target.path().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::rename(shards.join("part-0002"), alone.join("part-0002")).unwrap();
    fs::remove_dir_all(&shards).unwrap();
    let shard = Shard::open(&alone, 2).unwrap();
    let (owned, halo) = slow_ids(&toy.dataset(), assignment.of(), 2);
    assert_eq!(shard.ids(), [owned, halo].concat());
    let error = Shard::open(&alone, 0).err().unwrap().to_string();
    assert!(error.contains("part-0000") && error.contains("part 0 is missing"), "{error}");
}

#[test]
fn parts_keep_the_locality_order() {
    let (_folder, dataset) = communities(20_000, 300_000);
    let order = dataset.order().unwrap().expect("an order that improves locality");
    let of: Vec<u32> = (0..20_000).map(|v| v % 3).collect();
    let assignment = Assignment::new(3, of).unwrap();
    let shards = cut_all(&dataset, &assignment);
    for (part, shard) in shards.iter().enumerate() {
        let owned = order.iter().copied().filter(|v| v % 3 == part as u32).collect::<Vec<_>>();
        assert_eq!(shard.ids()[..shard.owned()], owned);
        for (owner, other) in shards.iter().enumerate().filter(|(owner, _)| *owner != part) {
            let homes = shard.homes(owner as u32);
            assert!(homes.is_sorted() && !homes.is_empty());
            let sent = homes.iter().map(|&home| other.ids()[home as usize]);
            assert!(sent.eq(shard.ids()[shard.rows_of(owner as u32)].iter().copied()));
        }
    }
}

#[test]
fn the_layout_digest_depends_on_the_assignment() {
    let toy = Toy::new(4, &[[0, 1]]);
    let dataset = toy.dataset();
    let layout = |parts, of: &[u32]| {
        let assignment = Assignment::new(parts, of.to_vec()).unwrap();
        Layout::of(&dataset, &assignment).unwrap().partition.layout
    };
    let first = layout(2, &[0, 0, 1, 1]);
    assert_eq!(first, layout(2, &[0, 0, 1, 1]));
    for (parts, of) in [(2, [0, 1, 0, 1]), (3, [0, 0, 1, 1]), (2, [0, 0, 0, 1])] {
        assert_ne!(first, layout(parts, &of));
    }
}

#[test]
fn missing_parts_and_assignments_of_another_graph_are_refused() {
    let dataset = Toy::new(4, &[[0, 1]]).dataset();
    let two = Assignment::new(2, vec![0; 4]).unwrap();
    let layout = Layout::of(&dataset, &two).unwrap();
    assert!(layout.cut(1).is_ok());
    assert!(layout.cut(2).err().unwrap().to_string().contains("0 to 1"));
    let other = Assignment::new(2, vec![0; 5]).unwrap();
    assert!(Layout::of(&dataset, &other).err().unwrap().to_string().contains("5 vertices for a graph of 4"));
}

/// Damages part 0; returns the error of opening it.
fn after(damage: impl Fn(&Path)) -> String {
    after_of(PLAIN, damage)
}

#[track_caller]
fn after_of(kind: Kind, damage: impl Fn(&Path)) -> String {
    let (_toy, _assignment, _target, shards) = on_disk(kind);
    damage(&shards.join("part-0000"));
    Shard::open(&shards, 0).err().expect("damage is found").to_string()
}

#[test]
fn damaged_files_are_named() {
    let dense = ARRAYS.into_iter().chain(WEIGHTS).chain(["feat.npy"]).map(|file| (PLAIN, file));
    for (kind, file) in dense.chain(SPARSE.map(|file| (SPARSE_FEATURES, file))) {
        let after = |damage: fn(&Path, &str)| after_of(kind, |folder| damage(folder, file));
        let flipped = after(|folder, file| {
            let mut bytes = fs::read(folder.join(file)).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(folder.join(file), bytes).unwrap();
        });
        let longer = after(|folder, file| {
            let mut bytes = fs::read(folder.join(file)).unwrap();
            bytes.extend([0; 8]);
            fs::write(folder.join(file), bytes).unwrap();
        });
        let shorter = after(|folder, file| {
            let bytes = fs::read(folder.join(file)).unwrap();
            fs::write(folder.join(file), &bytes[..bytes.len() - 1]).unwrap();
        });
        let empty = after(|folder, file| fs::write(folder.join(file), "").unwrap());
        for message in [flipped, longer, shorter, empty] {
            assert!(message.contains(file) && message.contains("halograph partition"), "{message}");
        }
        assert!(after(|folder, file| fs::remove_file(folder.join(file)).unwrap()).contains(file));
    }
}

/// Replaces text in `shard.json`.
fn edit(folder: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(folder.join(MANIFEST)).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(folder.join(MANIFEST), text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_changed_manifest_is_refused() {
    for (from, to, word) in [
        ("halograph-shard", "halograph-shart", "format"),
        ("\"version\": 1", "\"version\": 7", "version 7"),
        ("\"owned\": 4", "\"owned\": 5", "digest"),
        ("\"training\": 2", "\"training\": 3", "digest"),
        ("\"name\": \"toy\"", "\"name\": \"boy\"", "digest"),
        ("{", "", "not a shard manifest"),
    ] {
        let message = after(|folder| edit(folder, from, to));
        assert!(message.contains(word) && message.contains(MANIFEST), "{message}");
    }
    let (_toy, _assignment, _target, shards) = on_disk(PLAIN);
    fs::remove_dir_all(shards.join("part-0000")).unwrap();
    fs::rename(shards.join("part-0002"), shards.join("part-0000")).unwrap();
    let message = Shard::open(&shards, 0).err().unwrap().to_string();
    assert!(message.contains("is part 2, not part 0"), "{message}");
}

/// Replaces an array of a shard and its record in the manifest.
fn forge<T: Element>(folder: &Path, file: &str, elements: &[T]) {
    let path = folder.join(file);
    fs::remove_file(&path).unwrap();
    let mut writer = Writer::create(&path, &[elements.len()]).unwrap();
    writer.write(elements).unwrap();
    resign(folder, |manifest| drop(manifest.files.insert(file.into(), writer.finish().unwrap())));
}

/// Changes the manifest of a shard and updates its digest.
fn resign(folder: &Path, change: impl FnOnce(&mut ShardManifest)) {
    let path = folder.join(MANIFEST);
    let mut manifest: ShardManifest = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut manifest);
    manifest.digest = manifest.compute_digest();
    fs::write(&path, serde_json::to_string(&manifest).unwrap()).unwrap();
}

#[test]
fn out_of_range_indices_are_refused_despite_a_valid_digest() {
    use super::manifest::{HALO, IDS};
    use crate::dataset::{EDGE_WEIGHT, INDICES, INDPTR};
    let shard = |folder: &Path| Shard::open(folder.parent().unwrap(), 0).unwrap();
    let outside = after(|folder| {
        let mut columns = shard(folder).edges().indices.to_vec();
        columns[1] = 999;
        forge(folder, INDICES, &columns);
    });
    let unsorted = after(|folder| {
        let mut columns = shard(folder).edges().indices.to_vec();
        columns.swap(0, 1);
        forge(folder, INDICES, &columns);
    });
    let falling = after(|folder| {
        let mut starts = shard(folder).edges().indptr.to_vec();
        starts[1] = 99;
        forge(folder, INDPTR, &starts);
    });
    let unknown = after(|folder| {
        let mut ids = shard(folder).ids().to_vec();
        ids[0] = 12;
        forge(folder, IDS, &ids);
    });
    let negative = after(|folder| {
        let mut weights = shard(folder).edge_weights().unwrap().to_vec();
        weights[2] = -0.5;
        forge(folder, EDGE_WEIGHT, &weights);
    });
    assert!(negative.contains("edge_weight.npy: element 2: weight -0.5"), "{negative}");
    let uneven = after(|folder| forge(folder, HALO, &[0u64, 1, 1, 1]));
    let short = after(|folder| forge(folder, IDS, &[0u32, 1]));
    let wide = after(|folder| forge::<u64>(folder, IDS, &[0; 12]));
    let crowded = after(|folder| resign(folder, |manifest| manifest.owned = 13));
    let none = after(|folder| resign(folder, |manifest| manifest.partition.parts = 0));
    let listed = after(|folder| {
        let record = FileRecord { bytes: 0, blake3: String::new() };
        resign(folder, |manifest| drop(manifest.files.insert("../x".into(), record)));
    });
    for (message, words) in [
        (outside, ["indices.npy", "out-of-range row 999"]),
        (unsorted, ["indices.npy", "unsorted edges"]),
        (falling, ["indptr.npy", "may not decrease"]),
        (unknown, ["ids.npy", "out-of-range id 12"]),
        (uneven, ["halo.npy", "not consecutive"]),
        (short, ["ids.npy", "wrong length"]),
        (wide, ["ids.npy", "wrong dtype"]),
        (crowded, [MANIFEST, "13 owned"]),
        (none, [MANIFEST, "part 0 of 0"]),
        (listed, [MANIFEST, "not that of a shard"]),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn invalid_labels_and_splits_are_refused_despite_a_valid_digest() {
    let classes = after(|folder| forge(folder, LABEL, &[0i64, -1, 3, 1]));
    let negative = after(|folder| forge(folder, LABEL, &[0i64, -2, 0, 1]));
    let split = after(|folder| {
        let mut split = Shard::open(folder.parent().unwrap(), 0).unwrap().split().to_vec();
        split[3] = 4;
        forge(folder, SPLIT, &split);
    });
    let (_toy, _assignment, _target, shards) = on_disk(Kind { multi_label: true, ..PLAIN });
    let folder = shards.join("part-0000");
    let mut bytes = fs::read(folder.join(LABEL)).unwrap();
    *bytes.last_mut().unwrap() = 2;
    fs::write(folder.join(LABEL), &bytes).unwrap();
    let blake3 = blake3::hash(&bytes).to_hex().to_string();
    let record = FileRecord { bytes: bytes.len() as u64, blake3 };
    resign(&folder, |manifest| drop(manifest.files.insert(LABEL.into(), record)));
    let flags = Shard::open(&shards, 0).err().unwrap().to_string();
    for (message, words) in [
        (classes, ["label.npy", "row 2: label 3 outside 3 classes"]),
        (negative, ["label.npy", "row 1: label -2 outside 3 classes"]),
        (split, ["split.npy", "row 3: 4 is none of 0 (none)"]),
        (flags, ["label.npy", "row 3, class 1: 2 where 0 or 1 is needed"]),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn a_manifest_is_read_without_the_arrays() {
    let (_toy, _assignment, _target, shards) = on_disk(PLAIN);
    let shard = Shard::open(&shards, 2).unwrap();
    ARRAYS.iter().for_each(|file| fs::remove_file(shards.join("part-0002").join(file)).unwrap());
    let told = Shard::describe(&shards, 2).unwrap();
    assert_eq!((told.owned, told.halo), (shard.owned() as u64, (shard.rows() - shard.owned()) as u64));
    assert_eq!(told.partition, *shard.partition());
    assert!(Shard::describe(&shards, 3).is_err());
}

#[test]
fn only_a_partition_is_replaced() {
    let (toy, assignment, target, shards) = on_disk(PLAIN);
    let dataset = toy.dataset();
    let layout = Layout::of(&dataset, &assignment).unwrap();
    let again = |overwrite| write(&shards, overwrite, &layout, &Origin::imported(), &Silent);
    assert!(again(false).unwrap_err().to_string().contains("--overwrite"));
    again(true).unwrap();
    fs::write(shards.join("part-0001/notes.md"), "mine").unwrap();
    assert!(again(true).unwrap_err().to_string().contains("part-0001/notes.md"));
    fs::remove_file(shards.join("part-0001/notes.md")).unwrap();
    fs::write(shards.join("part-1"), "mine").unwrap();
    assert!(again(true).unwrap_err().to_string().contains("part-1"));
    let names: Vec<_> = fs::read_dir(target.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["shards"], "nothing hidden is left");
    let message =
        write(dataset.path().unwrap(), true, &layout, &Origin::imported(), &Silent).unwrap_err().to_string();
    assert!(message.contains("not a partition"), "{message}");
}
