"""What the tests share: graphs, PyG, the command line, and skipped tests that `scripts/test` reports."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import halograph

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"model": "gcn", "hidden": 8, "layers": 2, "epochs": 3, "threads": 1, "progress": False}
"""Settings of a training of milliseconds."""


def pytest_runtest_logreport(report):
    """Adds a line per skipped test to the file that `scripts/test` prints."""
    file = os.environ.get("HALOGRAPH_SKIPPED_TESTS")
    # Tests of the other kind of build are not for this one.
    if report.skipped and file and "the package was built with" not in report.longrepr[2]:
        with open(file, "a") as out:
            out.write(f"{report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}\n")


def make_arrays(nodes=60, features=5, classes=3, seed=0):
    """Returns the arguments of `Dataset.from_arrays`: undirected edges listed once, and a split of all nodes."""
    rng = np.random.default_rng(seed)
    y = np.arange(nodes) % classes
    source, target = rng.integers(0, nodes, size=(2, 4 * nodes))
    keep = (source < target) & ((y[source] == y[target]) | (rng.random(len(source)) < 0.2))
    edge_index = np.unique(np.stack([source[keep], target[keep]]), axis=1)
    x = (np.eye(classes)[y] @ rng.normal(size=(classes, features)) + rng.normal(size=(nodes, features))).astype(np.float32)
    part = rng.permutation(nodes) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(["train", "val", "test"])}
    return {"edge_index": edge_index, "x": x, "y": y, **masks}


@pytest.fixture
def arrays():
    return make_arrays()


@pytest.fixture
def data(arrays):
    return halograph.Dataset.from_arrays(**arrays)


@pytest.fixture(scope="session")
def pyg():
    """torch and what the tests use of PyG, imported without their own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch", reason="torch is not installed")
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
        from torch_geometric.data import Data
        from torch_geometric.io import read_planetoid_data
    torch.set_num_threads(1)
    return SimpleNamespace(torch=torch, Data=Data, read_planetoid_data=read_planetoid_data)


@pytest.fixture(scope="session")
def cora(pyg):
    """Cora as `Planetoid` of PyG returns it."""
    folder = os.environ.get("HALOGRAPH_TEST_DATA")
    if folder is None:
        pytest.skip("HALOGRAPH_TEST_DATA is not set, so there is no cora")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pyg.read_planetoid_data(str(Path(folder, "cora")), "cora")


def halograph_command(*words, **options):
    """Runs the `halograph` command of the wheel."""
    command = Path(sys.executable).with_name("halograph")
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([command, *map(str, words)], **options)


def run_python(code, *, launcher=(), **options):
    """Runs a program in another interpreter, in which warnings are errors."""
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([*launcher, sys.executable, "-W", "error", "-c", code], **options)


def read_safetensors(path):
    """Returns the arrays of a safetensors file: a header of JSON, then the numbers."""
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    content = Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        numbers = np.frombuffer(content[start + first : start + last], types[entry["dtype"]])
        arrays[name] = numbers.reshape(entry["shape"])
    return arrays


def assert_same_weights(one, other):
    """Fails unless both state dicts have the same names, shapes, types and bits."""
    assert sorted(one) == sorted(other)
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape), name
        assert array.tobytes() == other[name].tobytes(), name
