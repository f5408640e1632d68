"""Constructors of datasets: all agree, and say what is wrong."""

import copy
import pickle
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import QUICK, halograph_command, make_arrays

from halograph import Dataset, HalographWarning, InputError, _dataset, train

MASKS = ["train_mask", "val_mask", "test_mask"]


def masks(arrays):
    return {name: arrays[name] for name in MASKS}


def split_names(arrays):
    return np.select([arrays[name] for name in MASKS], ["train", "val", "test"], "")


def from_scipy(arrays, tmp_path):
    source, target = arrays["edge_index"]
    ones = np.ones(len(source))
    nodes = len(arrays["x"])
    adjacency = sp.coo_array((ones, (source, target)), shape=(nodes, nodes))
    return Dataset.from_scipy(adjacency, arrays["x"], arrays["y"], **masks(arrays))


def from_pyg(arrays, tmp_path):
    torch = pytest.importorskip("torch")
    # The attributes that are read are those of any object; `test_pyg.py` reads a Data of PyG.
    data = SimpleNamespace(**{name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    return Dataset.from_pyg(data)


class DglGraph:
    """Stand-in for `dgl.DGLGraph`, whose last release needs an older torch: the part of its interface that is read."""

    ntypes, etypes = ["_N"], ["_E"]
    is_homogeneous = True

    def __init__(self, arrays, **edata):
        torch = pytest.importorskip("torch")
        self.source, self.target = torch.from_numpy(arrays["edge_index"])
        names = {"x": "feat", "y": "label"}
        self.ndata = {names.get(name, name): torch.from_numpy(np.array(arrays[name])) for name in ["x", "y", *MASKS]}
        self.edata = {name: torch.from_numpy(weights) for name, weights in edata.items()}

    def num_nodes(self):
        return len(self.ndata["feat"])

    def num_edges(self):
        return len(self.source)

    def edges(self, form="uv", order="eid"):
        assert (form, order) == ("uv", "eid")
        return self.source, self.target


def from_dgl(arrays, tmp_path):
    return Dataset.from_dgl(DglGraph(arrays))


def from_networkx(arrays, tmp_path):
    graph = nx.Graph()
    for node, (x, y) in enumerate(zip(arrays["x"], arrays["y"], strict=True)):
        flags = {name: bool(arrays[name][node]) for name in MASKS}
        graph.add_node(node, x=x.tolist(), y=int(y), **flags)
    graph.add_edges_from(arrays["edge_index"].T.tolist())
    return Dataset.from_networkx(graph)


def from_pandas(arrays, tmp_path):
    edges = pd.DataFrame(arrays["edge_index"].T, columns=["src", "dst"])
    nodes = pd.DataFrame(arrays["x"]).rename(columns="f{}".format)
    nodes = nodes.assign(id=nodes.index, label=arrays["y"], split=split_names(arrays))
    return Dataset.from_pandas(edges, nodes)


def opened(arrays, tmp_path):
    Dataset.from_arrays(**arrays).save(tmp_path / "saved")
    return Dataset.open(tmp_path / "saved")


def imported(arrays, tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    done = halograph_command("data", "import", "npy", folder, "-o", tmp_path / "imported", "--quiet")
    assert done.returncode == 0, done.stderr
    return Dataset.open(tmp_path / "imported")


@pytest.mark.parametrize(
    "construct", [from_scipy, from_pyg, from_dgl, from_networkx, from_pandas, opened, imported], ids=lambda f: f.__name__
)
def test_constructors_give_the_same_dataset(arrays, data, construct, tmp_path):
    other = construct(arrays, tmp_path)
    if construct is from_pandas:  # the only one whose features have names, which are part of the data
        assert other.feature_names == [f"f{i}" for i in range(5)]
        data = Dataset.from_arrays(**arrays, feature_names=other.feature_names)
    assert other.fingerprint == data.fingerprint
    assert_same_contents(other, data)


def assert_same_contents(one, other):
    for name in ["x", "y", "edge_index", *MASKS]:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def test_contents_are_those_of_the_arrays(arrays, data):
    assert (data.num_nodes, data.num_features, data.num_classes, data.num_splits) == (60, 5, 3, 1)
    assert (data.task, data.metric, data.directed, data.path) == ("single-label", "accuracy", False, None)
    for name in ["x", "y", *MASKS]:
        np.testing.assert_array_equal(getattr(data, name), arrays[name], name)
    both_ways = np.concatenate([arrays["edge_index"], arrays["edge_index"][::-1]], axis=1)
    assert data.num_edges == both_ways.shape[1]
    assert sorted(map(tuple, data.edge_index.T)) == sorted(map(tuple, both_ways.T))
    indptr, indices = data.csr
    np.testing.assert_array_equal(indices, data.edge_index[0])
    np.testing.assert_array_equal(np.repeat(np.arange(60), np.diff(indptr.astype(np.int64))), data.edge_index[1])
    assert repr(data) == f"Dataset(arrays, nodes=60, edges={data.num_edges}, features=5, classes=3)"


def test_properties_are_read_only(data):
    for array in [data.x, data.y, *data.csr]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        data.num_nodes = 1


@pytest.mark.parametrize(
    "convert",
    {
        "float64": lambda x: x.astype(np.float64),
        "float16": lambda x: x.astype(np.float16),
        "integer": lambda x: x.astype(np.int8),
        "bool": lambda x: x > 0,
        "Fortran": np.asfortranarray,
        "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
        "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        "big-endian": lambda x: x.astype(">f4"),
        "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape),
        "list": lambda x: x.tolist(),
        "sparse": sp.csr_array,
        "sparse matrix": sp.coo_matrix,
    }.items(),
    ids=lambda case: case[0],
)
def test_layouts_and_types_of_features(arrays, convert):
    x = convert[1](arrays["x"])
    plain = np.array(x.toarray() if sp.issparse(x) else x, np.float32, order="C")
    expected = Dataset.from_arrays(**{**arrays, "x": plain})
    assert Dataset.from_arrays(**{**arrays, "x": x}).fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    "convert",
    [np.int32, np.uint8, np.float64, np.asfortranarray, lambda a: a[:, ::-1], lambda a: a.astype(">i8"), lambda a: a.tolist()],
    ids=["int32", "uint8", "float64", "Fortran", "reversed", "big-endian", "list"],
)
def test_layouts_and_types_of_edges(arrays, data, convert):
    edge_index = convert(arrays["edge_index"])
    assert Dataset.from_arrays(**{**arrays, "edge_index": edge_index}).fingerprint == data.fingerprint


def test_labels_and_masks_in_other_forms(arrays, data):
    other = {**arrays, "y": arrays["y"].astype(np.float64)[:, None]}
    other.update({name: np.flatnonzero(arrays[name]) for name in MASKS})
    assert Dataset.from_arrays(**other).fingerprint == data.fingerprint
    unlabelled = np.where(arrays["train_mask"], arrays["y"], -1)
    as_nan = np.where(arrays["train_mask"], arrays["y"], np.nan)
    y = [Dataset.from_arrays(**{**arrays, "y": y, "val_mask": None, "test_mask": None}).y for y in (unlabelled, as_nan)]
    np.testing.assert_array_equal(y[0], unlabelled)
    np.testing.assert_array_equal(y[1], unlabelled)


def test_features_are_shared_and_protected(arrays):
    x = arrays["x"]
    data = Dataset.from_arrays(**arrays)
    assert np.shares_memory(data.x, x)
    with pytest.raises(ValueError, match="read-only"):
        x[0, 0] = 1
    # The features outlive the dataset, and the dataset the array.
    view = data.x
    expected = view.copy()
    del data, x, arrays
    np.testing.assert_array_equal(view, expected)

    arrays = make_arrays()
    copied = Dataset.from_arrays(**arrays, copy=True)
    arrays["x"][:] = 0
    np.testing.assert_array_equal(copied.x, expected)


def test_views_are_copied_unless_told(arrays):
    x = arrays.pop("x")
    copied = Dataset.from_arrays(x=x[:], **arrays)
    shared = Dataset.from_arrays(x=x[:], **arrays, copy=False)
    assert not np.shares_memory(copied.x, x) and np.shares_memory(shared.x, x)
    before = copied.x.copy()
    x[0, 0] = 7  # not protected: the caller was told
    np.testing.assert_array_equal(copied.x, before)
    assert shared.x[0, 0] == 7


def test_arrays_that_are_not_shared_stay_writeable(arrays):
    with pytest.raises(InputError):
        Dataset.from_arrays(**{**arrays, "y": [0]})
    arrays["x"][0, 0] = 1
    mostly_zeros = np.zeros((60, 100), np.float32)
    mostly_zeros[:, 0] = 1
    for x in (mostly_zeros, arrays["x"].astype(np.float64)):  # stored sparse; converted
        Dataset.from_arrays(**{**arrays, "x": x})
        x[0, 0] = 1


def test_an_array_is_read_only_while_it_is_checked(arrays, monkeypatch):
    """Another thread cannot write to the array between the check of its elements and the end of the constructor."""
    native, writeable = _dataset._halograph.Dataset.from_arrays, []

    def check(given, options):
        writeable.append(given["x"].flags.writeable)
        return native(given, options)

    monkeypatch.setattr(_dataset, "_halograph", SimpleNamespace(Dataset=SimpleNamespace(from_arrays=check)))
    data = Dataset.from_arrays(**arrays)
    assert writeable == [False] and np.shares_memory(data.x, arrays["x"])


def test_copies_of_a_dataset_are_the_dataset(data):
    assert copy.copy(data) is data and copy.deepcopy([data])[0] is data


def test_read_only_arrays_are_taken(arrays, data):
    for array in arrays.values():
        array.flags.writeable = False
    assert Dataset.from_arrays(**arrays).fingerprint == data.fingerprint


def test_sparse_features_stay_sparse(arrays):
    x = sp.random_array((60, 200), density=0.02, rng=np.random.default_rng(0), dtype=np.float32)
    sparse = Dataset.from_arrays(**{**arrays, "x": x})
    assert sp.issparse(sparse.x) and sparse.num_features == 200
    np.testing.assert_array_equal(sparse.x.toarray(), x.toarray())
    np.testing.assert_array_equal(sparse.x.tocoo().toarray(), x.toarray())
    assert sp.vstack([sparse.x, sparse.x]).shape == (120, 200)
    # The same numbers; training computes the same up to rounding.
    dense = Dataset.from_arrays(**{**arrays, "x": x}, layout="dense")
    np.testing.assert_array_equal(dense.x, x.toarray())
    # Dense arrays that are mostly zeros become sparse, too.
    assert Dataset.from_arrays(**{**arrays, "x": x.toarray()}).fingerprint == sparse.fingerprint
    losses = [train(data, precision="f64", **QUICK).history["loss"] for data in (sparse, dense)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)


def test_edges_are_directed_weighted_or_loops(arrays):
    edges, weights = np.array([[0, 1, 2, 2], [1, 2, 0, 2]]), np.array([1.0, 0.5, 2.0, 3.0])
    del arrays["edge_index"]
    directed = Dataset.from_arrays(edges, **arrays, edge_weight=weights, directed=True, keep_self_loops=True)
    assert directed.directed and directed.num_edges == 4
    stored = {(s, d): w for (s, d), w in zip(directed.edge_index.T.tolist(), directed.edge_weight, strict=True)}
    assert stored == {(0, 1): 1, (1, 2): 0.5, (2, 0): 2, (2, 2): 3}
    assert Dataset.from_arrays(edges, **arrays).num_edges == 6  # both ways, without the loop
    adjacency = sp.coo_matrix((weights, tuple(edges)), shape=(60, 60)).tocsc()
    options = {"directed": True, "keep_self_loops": True}
    of_scipy = Dataset.from_scipy(adjacency, **arrays, **options)
    assert of_scipy.fingerprint == directed.fingerprint
    assert Dataset.from_scipy(adjacency, **arrays, **options, weighted=False).edge_weight is None
    of_dgl = Dataset.from_dgl(DglGraph({"edge_index": edges, **arrays}, w=weights), edge_weight="w", **options)
    assert of_dgl.fingerprint == directed.fingerprint


def test_weights_of_networkx_and_pandas_are_those_of_arrays():
    rows = [("a", "b", 2.0), ("b", "c", 1.0)]
    graph = nx.DiGraph()
    graph.add_nodes_from((name, {"x": [i, 1.0], "y": i % 2}) for i, name in enumerate("abc"))
    graph.add_edge("a", "b", weight=2.0)
    graph.add_edge("b", "c")  # weight 1
    edges = pd.DataFrame(rows, columns=["from", "to", "amount"])
    nodes = pd.DataFrame({"u": [0, 1, 2], "v": 1.0, "kind": ["no", "yes", "no"]}, index=list("abc"))
    x, y = [[0, 1], [1, 1], [2, 1]], [0, 1, 0]
    plain = Dataset.from_arrays([[0, 1], [1, 2]], x, y, edge_weight=[2, 1], directed=True, ids=list("abc"))
    assert Dataset.from_networkx(graph).fingerprint == plain.fingerprint
    assert Dataset.from_networkx(graph).ids == list("abc")
    columns = {"source": "from", "target": "to", "weight": "amount", "label": "kind"}
    of_pandas = Dataset.from_pandas(edges, nodes, **columns, directed=True)
    assert (of_pandas.ids, of_pandas.class_names, of_pandas.feature_names) == (list("abc"), ["no", "yes"], ["u", "v"])
    assert_same_contents(of_pandas, plain)
    np.testing.assert_array_equal(of_pandas.edge_weight, plain.edge_weight)


def test_multi_label_and_several_splits(arrays):
    flags = np.eye(3, dtype=np.uint8)[arrays["y"]] | (np.arange(60) % 4 == 0)[:, None]
    data = Dataset.from_arrays(**{**arrays, "y": flags})
    assert (data.task, data.metric, data.num_classes) == ("multi-label", "micro-f1", 3)
    np.testing.assert_array_equal(data.y, flags)
    assert train(data, **QUICK).predict(output="classes").shape == (60, 3)

    two = {name: np.stack([arrays[name], np.roll(arrays[name], 1)], axis=1) for name in MASKS}
    data = Dataset.from_arrays(**{**arrays, **two})
    assert data.num_splits == 2
    np.testing.assert_array_equal(data.train_mask, arrays["train_mask"])
    runs = [train(data, split_index=i, **QUICK) for i in range(2)]
    assert runs[0].history["loss"][0] != runs[1].history["loss"][0]


def test_datasets_without_labels_only_predict(arrays, data):
    new = Dataset.from_arrays(arrays["edge_index"], arrays["x"])
    assert new.num_classes == 0 and (new.y == -1).all()
    run = train(data, **QUICK)
    np.testing.assert_array_equal(run.predict(new), run.predict())
    with pytest.raises(InputError, match="label"):
        train(new, **QUICK)
    with pytest.raises(InputError):
        run.evaluate(new)


def test_generated_datasets_are_those_of_the_command_line(tmp_path):
    in_memory = Dataset.make("demo", seed=3)
    on_disk = Dataset.make("demo", seed=3, path=tmp_path / "disk")
    done = halograph_command("data", "make", "demo", "--seed", 3, "-o", tmp_path / "command", "-q")
    assert done.returncode == 0, done.stderr
    prints = {data.fingerprint for data in (in_memory, on_disk, Dataset.open(tmp_path / "command"))}
    assert prints == {in_memory.fingerprint}
    assert Dataset.make("demo").fingerprint not in prints
    assert (in_memory.path, on_disk.path) == (None, str(tmp_path / "disk"))


def test_saving_replaces_only_when_told(data, arrays, tmp_path):
    data.save(tmp_path / "g")
    with pytest.raises(InputError, match="exists"):
        data.save(tmp_path / "g")
    other = Dataset.from_arrays(**make_arrays(seed=1))
    other.save(tmp_path / "g", overwrite=True)
    assert Dataset.open(tmp_path / "g").fingerprint == other.fingerprint
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(InputError):
        data.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_pickles_of_datasets(data, tmp_path):
    data.save(tmp_path / "g")
    again = pickle.loads(pickle.dumps(Dataset.open(tmp_path / "g")))
    assert again.fingerprint == data.fingerprint
    with pytest.raises((InputError, TypeError), match="save"):
        pickle.dumps(data)


def without(arrays, name):
    return {key: array for key, array in arrays.items() if key != name}


def changed(array, index, value, dtype=None):
    """Returns a copy with one other element."""
    array = np.array(array, dtype)
    array[index] = value
    return array


WRONG = {
    # name: (how the arguments are changed, parts of the message)
    "edges of one row": (lambda a: {"edge_index": a["edge_index"][:1]}, ["edge_index", "[1, "]),
    "edges of three dimensions": (lambda a: {"edge_index": a["edge_index"][None]}, ["edge_index", "[1, 2, "]),
    "an edge to an unknown node": (lambda a: {"edge_index": changed(a["edge_index"], (1, 7), 60)}, ["edge_index", "60"]),
    "an edge from a negative node": (lambda a: {"edge_index": changed(a["edge_index"], (0, 7), -1)}, ["edge_index", "-1"]),
    "an edge beyond 32 bits": (lambda a: {"edge_index": changed(a["edge_index"], (0, 0), 2**32)}, ["edge_index", "4294967296"]),
    "an edge beyond 64 bits": (lambda a: {"edge_index": changed(a["edge_index"], (0, 0), 2**64 - 1, np.uint64)}, ["edge_index"]),
    "half an edge": (lambda a: {"edge_index": changed(a["edge_index"], (0, 0), 0.5, float)}, ["edge_index", "0.5"]),
    "an edge of NaN": (lambda a: {"edge_index": changed(a["edge_index"], (0, 0), np.nan, float)}, ["edge_index", "NaN"]),
    "edges of text": (lambda a: {"edge_index": a["edge_index"].astype(str)}, ["edge_index", "<U"]),
    "edges of objects": (lambda a: {"edge_index": a["edge_index"].astype(object)}, ["edge_index", "object"]),
    "ragged edges": (lambda a: {"edge_index": [[0, 1], [2]]}, ["edge_index"]),
    "NaN in features": (lambda a: {"x": changed(a["x"], (17, 3), np.nan)}, ["x", "17", "3", "NaN"]),
    "infinite features": (lambda a: {"x": changed(a["x"], (17, 3), np.inf)}, ["x", "17", "3", "inf"]),
    "features beyond float32": (lambda a: {"x": changed(a["x"], (17, 3), 1e300, np.float64)}, ["x", "17", "3"]),
    "complex features": (lambda a: {"x": a["x"].astype(complex)}, ["x", "complex"]),
    "features of text": (lambda a: {"x": a["x"].astype(str)}, ["x", "<U"]),
    "features of one dimension": (lambda a: {"x": a["x"][:, 0]}, ["x", "[60]"]),
    "features of no column": (lambda a: {"x": a["x"][:, :0]}, ["x"]),
    "no nodes": (lambda a: {"x": a["x"][:0]}, ["0 nodes"]),
    "sparse NaN": (lambda a: {"x": sp.csr_array(changed(a["x"], (17, 3), np.nan))}, ["x", "NaN"]),
    "short labels": (lambda a: {"y": a["y"][:-1]}, ["y", "59", "60"]),
    "fractional labels": (lambda a: {"y": changed(a["y"], 4, 0.5, float)}, ["y", "0.5"]),
    "labels below -1": (lambda a: {"y": changed(a["y"], 4, -2)}, ["y", "-2"]),
    "flags other than 0 and 1": (lambda a: {"y": changed(np.eye(3)[a["y"]], (4, 1), 2)}, ["y", "2"]),
    "labels of text": (lambda a: {"y": a["y"].astype(str)}, ["y", "<U"]),
    "a short mask": (lambda a: {"val_mask": a["val_mask"][:-1]}, ["val_mask", "59"]),
    "a node beyond the graph in a mask": (lambda a: {"val_mask": [0, 60]}, ["val_mask", "60"]),
    "overlapping masks": (lambda a: {"val_mask": a["train_mask"]}, ["val_mask", "two subsets"]),
    "a negative weight": (lambda a: {"edge_weight": changed(np.ones(a["edge_index"].shape[1]), 5, -1)}, ["edge_weight", "-1"]),
    "a weight of NaN": (lambda a: {"edge_weight": changed(np.ones(a["edge_index"].shape[1]), 5, np.nan)}, ["edge_weight", "NaN"]),
    "short weights": (lambda a: {"edge_weight": [1.0]}, ["edge_weight"]),
    "an unknown metric": (lambda a: {"metric": "accuracies"}, ["metric", "accuracies"]),
    "auc of three classes": (lambda a: {"metric": "auc"}, ["auc"]),
    "an unknown task": (lambda a: {"task": "regression"}, ["task", "regression"]),
    "too few class names": (lambda a: {"class_names": ["a", "b"]}, ["class_names"]),
    "too few feature names": (lambda a: {"feature_names": ["a"]}, ["feature_names"]),
    "too few ids": (lambda a: {"ids": ["a"]}, ["ids"]),
    "equal ids": (lambda a: {"ids": ["a", *range(58), "a"]}, ["ids", "'a'", "twice"]),
    "ids of one text": (lambda a: {"ids": "a" * 60}, ["ids", "sequence"]),
    "a negative seed": (lambda a: {"seed": -1}, ["seed", "-1"]),
    "a seed beyond 64 bits": (lambda a: {"seed": 2**64}, ["seed", "18446744073709551616"]),
    "a name that is no text": (lambda a: {"name": 3}, ["name", "3"]),
    "a name that is not UTF-8": (lambda a: {"name": "\udcff"}, ["name", "surrogates"]),
    "a direction that is no flag": (lambda a: {"directed": "no"}, ["directed", "no"]),
    "a split of words": (lambda a: {"split": ["a", "b", "c"]}, ["split", "0.6,0.2,0.2"]),
    "an empty mask of flags": (lambda a: {"train_mask": np.zeros(0, bool)}, ["train_mask", "60"]),
    "masked features": (lambda a: {"x": np.ma.masked_less(a["x"], 0)}, ["x", "masked", "filled"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_are_refused(arrays, case):
    change, parts = WRONG[case]
    with pytest.raises(InputError) as error:
        Dataset.from_arrays(**{**arrays, **change(arrays)})
    for part in parts:
        assert part.lower() in str(error.value).lower(), f"{part!r} is not in: {error.value}"


def test_plain_arguments_in_other_forms(arrays):
    numbered = Dataset.from_arrays(**arrays, ids=range(1, 61))
    assert numbered.ids == [str(id) for id in range(1, 61)]
    shares = Dataset.from_arrays(**arrays, split=(0.5, 0.25, 0.25), seed=np.int64(1))
    assert shares.fingerprint == Dataset.from_arrays(**arrays, split="0.5,0.25,0.25", seed=1).fingerprint
    assert shares.train_mask.sum() == 30
    unmasked = np.ma.masked_array(arrays["x"], False)
    assert Dataset.from_arrays(**{**arrays, "x": unmasked}).fingerprint == Dataset.from_arrays(**arrays).fingerprint


EDGES = pd.DataFrame({"src": ["a", "b"], "dst": ["b", "c"], "w": [1.0, 2.0], "time": 0})
NODES = pd.DataFrame({"id": list("abc"), "f": [0.0, 1, 2], "label": [0, 1, 0], "split": ["train", "val", None]})


@pytest.mark.parametrize("role", ["source", "target", "weight", "id", "label", "split", "features"])
def test_misspelt_columns_of_pandas_are_refused(role):
    with pytest.raises(InputError, match="no column 'misspelt'; the columns are"):
        Dataset.from_pandas(EDGES, NODES, **{role: ["misspelt"] if role == "features" else "misspelt"})


@pytest.mark.parametrize("role", ["x", "y", "train_mask", "val_mask", "test_mask", "weight"])
def test_misspelt_attributes_of_networkx_are_refused(role):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1.0, "x")
    assert Dataset.from_networkx(graph).num_classes == 0  # the usual attributes may be missing
    with pytest.raises(InputError, match="attribute 'misspelt'"):
        Dataset.from_networkx(graph, **{role: "misspelt"})


def test_usual_columns_of_pandas():
    """Columns are found by the names that `data import csv` knows; the notes say which."""
    data = Dataset.from_pandas(EDGES, NODES)
    assert data.feature_names == ["f"] and data.edge_weight is None
    assert "edges: columns that are not used: w, time" in data.notes
    assert "nodes: columns: id 'id', label 'label', split 'split'" in data.notes
    renamed = {"id": "Node", "label": "class"}, {"src": "From", "dst": "to", "w": "edge_weight"}
    other = Dataset.from_pandas(EDGES.rename(columns=renamed[1]), NODES.rename(columns=renamed[0]))
    assert_same_contents(other, data)
    np.testing.assert_array_equal(other.edge_weight, Dataset.from_pandas(EDGES, NODES, weight="w").edge_weight)
    # A column that is named as a feature has no other role.
    assert Dataset.from_pandas(EDGES, NODES, features=["f", "label"]).num_classes == 0
    with pytest.raises(InputError, match="'label' is"):
        Dataset.from_pandas(EDGES, NODES, label="label", features=["f", "label"])
    with pytest.raises(InputError, match="source=") as error:
        Dataset.from_pandas(EDGES.rename(columns={"src": "payer"}), NODES)
    assert "payer" in error.value.problem


def test_splits_of_pandas_are_columns_or_drawn():
    drawn = Dataset.from_pandas(EDGES, NODES.assign(split="fold 7"), split_rule=(0, 0, 1))
    assert drawn.test_mask.all() and drawn.feature_names == ["f"]
    assert "nodes: columns that are not used: split" in drawn.notes
    with pytest.raises(InputError, match="split_rule="):
        Dataset.from_pandas(EDGES, NODES, split="0.6,0.2,0.2")
    with pytest.raises(InputError, match="split_rule"):
        Dataset.from_pandas(EDGES, NODES, split="split", split_rule="auto")


def test_wrong_tables():
    with pytest.raises(InputError, match="row 1, column f"):
        Dataset.from_pandas(EDGES, NODES.assign(f=[0, np.nan, 1]))
    with pytest.raises(InputError, match="called 'f'"):
        Dataset.from_pandas(EDGES, pd.concat([NODES, NODES[["f"]]], axis=1))
    names = Dataset.from_pandas(EDGES, NODES.assign(label=["01", "1", None]))
    assert names.class_names == ["01", "1"] and list(names.y) == [0, 1, -1]
    numbers = Dataset.from_pandas(EDGES, NODES.assign(label=["1", "0", "-1"]))
    assert numbers.class_names == [] and list(numbers.y) == [1, 0, -1]
    graph = nx.Graph([("1", 1)])
    nx.set_node_attributes(graph, 1.0, "x")
    with pytest.raises(InputError, match="ids: '1' is there twice"):
        Dataset.from_networkx(graph)


def test_empty_arrays(arrays):
    # No edge at all is a graph: every node is isolated.
    no_edges = Dataset.from_arrays(**{**arrays, "edge_index": np.empty((2, 0), np.int64)})
    assert no_edges.num_edges == 0
    assert train(no_edges, **QUICK).predict().shape == (60, 3)
    assert Dataset.from_arrays(**{**arrays, "edge_index": [[], []]}).num_edges == 0
    # A subset may be empty, but not the training nodes of a run.
    nobody = np.zeros(60, bool)
    with pytest.raises(InputError, match="training node"):
        train(Dataset.from_arrays(**{**arrays, "train_mask": nobody}), **QUICK)


def test_other_constructors_refuse(arrays, pyg, tmp_path):
    x, y = arrays["x"], arrays["y"]
    with pytest.raises(InputError, match="square"):
        Dataset.from_scipy(sp.csr_array((60, 59)), x, y)
    with pytest.raises(InputError, match="scipy"):
        Dataset.from_scipy(np.eye(60), x, y)
    with pytest.raises(InputError, match="edge_index"):
        Dataset.from_pyg(pyg.Data(x=pyg.torch.ones(3, 2)))
    no_x = pyg.Data(edge_index=pyg.torch.tensor([[0], [1]]))
    for wrong, name in ((no_x, "Data has no x"), ([no_x], "list has no x")):
        with pytest.raises(InputError, match=name):
            Dataset.from_pyg(wrong)
    with pytest.raises(InputError, match="to_dense"):
        Dataset.from_pyg(no_x, x=pyg.torch.eye(2).to_sparse())
    graph = DglGraph(arrays)
    del graph.ndata["feat"]
    with pytest.raises(InputError, match="feat"):
        Dataset.from_dgl(graph)
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: [1.0], 1: [2.0]}, "x")
    with pytest.raises(InputError, match="2"):
        Dataset.from_networkx(graph)
    edges = pd.DataFrame({"src": ["a", "a"], "dst": ["b", "c"]})
    nodes = pd.DataFrame({"id": ["a", "b"], "f": [1.0, 2.0]})
    with pytest.raises(InputError, match="c"):
        Dataset.from_pandas(edges, nodes)
    with pytest.raises(InputError, match="dst"):
        Dataset.from_pandas(edges[["src"]], nodes)
    with pytest.raises(InputError, match="a"):
        Dataset.from_pandas(edges[:1], pd.concat([nodes, nodes[:1]]))
    with pytest.raises(InputError, match="word"):
        Dataset.from_pandas(edges[:1], nodes.assign(word=["p", "q"]), features=["f", "word"])
    with pytest.raises(InputError, match="nowhere"):
        Dataset.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="demo"):
        Dataset.make("demonstration")


def test_edge_attributes_of_pyg_are_warned_about(arrays, data, pyg):
    tensors = {name: pyg.torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    edge_attr = pyg.torch.ones(arrays["edge_index"].shape[1], 2)
    with pytest.warns(HalographWarning, match="edge_attr"):
        found = Dataset.from_pyg(pyg.Data(**tensors, edge_attr=edge_attr))
    assert found.fingerprint == data.fingerprint


def test_tensors_of_pyg(arrays, data, pyg):
    tensors = pyg.Data(**{name: pyg.torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    for copy in (None, True, False):
        found = Dataset.from_pyg(tensors, copy=copy)
        assert found.fingerprint == data.fingerprint
        assert np.shares_memory(found.x, tensors.x.numpy()) == (copy is False)
    # Options take precedence.
    for name, value in {"x": tensors.x + 1, "edge_index": tensors.edge_index[:, :9], "y": None}.items():
        expected = Dataset.from_arrays(**{**arrays, name: value})
        assert Dataset.from_pyg(tensors, **{name: value}).fingerprint == expected.fingerprint
    # numpy has no bfloat16.
    tensors.x = tensors.x.bfloat16()
    np.testing.assert_array_equal(Dataset.from_pyg(tensors).x, tensors.x.float().numpy())


def test_added_directions_are_noted(arrays, pyg):
    one_way = pyg.Data(x=pyg.torch.ones(3, 1), edge_index=pyg.torch.tensor([[0, 1], [1, 2]]))
    both_ways = pyg.torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])

    def notes(**options):
        return [note for note in Dataset.from_pyg(one_way, **options).notes if note.startswith("edge_index")]

    (note,) = notes()
    assert "2 edges were given and 4 are stored" in note and "directed=True" in note
    assert notes(directed=True) == notes(edge_index=both_ways) == []
