//! `order.npy`: computed when needed, stored, and never a cause of failure.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_graph::dataset::{ORDER, check};
use halograph_graph::generate::{Spec, make, presets};
use halograph_graph::io::npy::{Array, Element, Writer};
use halograph_graph::order::is_permutation;
use halograph_graph::{Dataset, Silent};

/// Generates a dataset large enough for an order: communities with random node ids.
fn communities(folder: &Path) -> PathBuf {
    let target = folder.join("d");
    make(&spec(), "d", &target, false, &Silent).unwrap();
    target
}

fn spec() -> Spec {
    let small = presets::find("small").unwrap().spec.clone();
    Spec { nodes: 20_000, edges: 300_000, features: 2, classes: 64, mixing: 0.02, ..small }
}

fn order(dataset: &Path) -> Option<Vec<u32>> {
    Dataset::open(dataset).unwrap().order().unwrap()
}

fn replace<T: Element>(path: &Path, shape: &[usize], elements: &[T]) {
    let _ = fs::remove_file(path);
    let mut writer = Writer::create(path, shape).unwrap();
    writer.write(elements).unwrap();
    writer.finish().unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_order_is_computed_once_and_stored() {
    let folder = tempfile::tempdir().unwrap();
    let d = communities(folder.path());
    let made = order(&d).expect("an order that improves locality");
    assert!(made.len() == 20_000 && is_permutation(&made));
    assert_eq!(Array::open(&d.join(ORDER)).unwrap().as_slice::<u32>().unwrap(), made);
    // A stored order is used, whatever it is …
    let reversed: Vec<u32> = (0..20_000).rev().collect();
    replace(&d.join(ORDER), &[20_000], &reversed);
    assert_eq!(order(&d), Some(reversed));
    // … and so is an empty one: no order.
    replace::<u32>(&d.join(ORDER), &[0], &[]);
    assert_eq!(order(&d), None);
}

#[test]
fn an_invalid_order_is_recomputed() {
    let folder = tempfile::tempdir().unwrap();
    let d = communities(folder.path());
    let path = d.join(ORDER);
    let made = order(&d);
    let mut repeated: Vec<u32> = (0..20_000).collect();
    repeated[7] = 8;
    let beyond: Vec<u32> = (1..=20_000).collect();
    let damage: [&dyn Fn(); 6] = [
        &|| replace(&path, &[20_000], &repeated),
        &|| replace(&path, &[20_000], &beyond),
        &|| replace(&path, &[3], &[0u32, 1, 2]),
        &|| replace(&path, &[20_000], &[0f32; 20_000]),
        &|| replace(&path, &[20_000, 1], &(0..20_000).collect::<Vec<u32>>()),
        &|| fs::write(&path, "not an array").unwrap(),
    ];
    for (case, damage) in damage.iter().enumerate() {
        damage();
        assert_eq!(order(&d), made, "case {case}");
        assert_eq!(Array::open(&path).unwrap().as_slice::<u32>(), made.as_deref(), "case {case}");
    }
}

#[test]
fn an_order_that_cannot_be_stored_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let d = communities(folder.path());
    // A folder of that name cannot be replaced by a file.
    fs::create_dir_all(d.join(ORDER).join("in the way")).unwrap();
    assert!(order(&d).is_some());
    assert!(names(&d).iter().all(|name| !name.contains("partial")), "{:?}", names(&d));
}

#[test]
fn small_and_unstructured_graphs_have_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    make(&presets::find("demo").unwrap().spec, "demo", &demo, false, &Silent).unwrap();
    assert_eq!((order(&demo), demo.join(ORDER).exists()), (None, false));
    let random = folder.path().join("random");
    let spec = Spec { nodes: 40_000, edges: 2_000_000, classes: 2, mixing: 1.0, ..spec() };
    make(&spec, "random", &random, false, &Silent).unwrap();
    assert!(order(&random).is_none());
    assert_eq!(Array::open(&random.join(ORDER)).unwrap().len(), 0, "stored as empty");
}

#[test]
fn an_order_is_not_part_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let d = communities(folder.path());
    order(&d);
    fs::write(d.join(".order.x.partial"), "left by a killed process").unwrap();
    let (manifest, faults) = check(&d, &Silent).unwrap();
    assert!(faults.is_empty() && !manifest.files.contains_key(ORDER));
    make(&Spec { seed: 1, ..spec() }, "d", &d, true, &Silent).unwrap();
    assert!(names(&d).iter().all(|name| !name.contains("order")), "a new graph has none");
}

#[test]
fn an_id_out_of_range_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let d = communities(folder.path());
    let mut ids = Dataset::open(&d).unwrap().graph().indices.to_vec();
    ids[5] = 20_000;
    replace(&d.join("indices.npy"), &[ids.len()], &ids);
    let error = Dataset::open(&d).unwrap().order().unwrap_err().to_string();
    assert!(
        error.contains("indices.npy, element 5: out-of-range id 20000 in a graph of 20000 nodes"),
        "{error}"
    );
}
