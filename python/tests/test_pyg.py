"""Data from PyG, models back to PyG."""

import os
import pickle
import sys
import warnings

import numpy as np
import pytest
from conftest import QUICK, halograph_command, make_arrays

import halograph
from halograph import Dataset, HalographWarning, InputError


def largest_difference(run, model, data):
    """Compares the logits of a PyG model with those of a run."""
    import torch

    with torch.no_grad():
        logits = model(data.x, data.edge_index, edge_weight=data.edge_weight if "edge_weight" in data else None)
    return np.abs(logits.numpy() - run.predict()).max()


def test_ten_lines_on_cora(cora):
    data = halograph.Dataset.from_pyg(cora, name="cora")
    run = halograph.train(data, model="gcn", layers=2, hidden=16, epochs=50, normalize="rows", progress=False)
    model = run.to_pyg()
    scaled = cora.x / cora.x.sum(dim=1, keepdim=True).clamp(min=1)  # normalize="rows"
    logits = model(scaled, cora.edge_index)
    assert np.abs(logits.detach().numpy() - run.predict()).max() < 1e-4
    right = (logits.argmax(dim=1) == cora.y)[cora.test_mask].float().mean()
    assert run.scores.test == pytest.approx(float(right)) and run.scores.test > 0.75


def test_cora_is_the_imported_cora(cora, tmp_path):
    """PyG and the importer of the command line read the same files to the same dataset."""
    source = os.path.join(os.environ["HALOGRAPH_TEST_DATA"], "cora")
    done = halograph_command("data", "import", "planetoid", source, "-o", tmp_path / "cora", "-q")
    assert done.returncode == 0, done.stderr
    imported = Dataset.open(tmp_path / "cora")
    data = Dataset.from_pyg(cora)
    assert data.num_edges == imported.num_edges == 10556
    for name in ["y", "train_mask", "val_mask", "test_mask", "edge_index"]:
        np.testing.assert_array_equal(getattr(data, name), getattr(imported, name), name)


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_models_give_the_same_logits_on_cora(cora, pyg, kind):
    run = halograph.train(Dataset.from_pyg(cora), **{**QUICK, "model": kind, "epochs": 10, "hidden": 16})
    assert largest_difference(run, run.to_pyg(), cora) < 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "sage"},
        {"model": "sage", "norm": "none", "self_in_mean": True, "normalize": "columns"},
        {"model": "gcn", "norm": "batch", "layers": 3, "normalize": "rows"},
        {"model": "gcn", "activation": "elu", "layers": 1},
        {"model": "gat", "heads": 2, "norm": "layer"},
        {"model": "gat", "precision": "f64"},
        {"model": "gin", "norm": "batch", "train_eps": True},
        {"model": "gcn", "ranks": 3},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_to_pyg_knows_the_settings(data, pyg, settings):
    run = halograph.train(data, **{**QUICK, **settings})
    model = run.to_pyg()
    assert not model.training and type(model).__module__.startswith("torch_geometric.nn.models")
    tensors = run.pyg_data()
    dtype = next(model.parameters()).dtype
    assert dtype == (pyg.torch.float64 if settings.get("precision") == "f64" else pyg.torch.float32)
    assert tensors.x.dtype == dtype
    assert largest_difference(run, model, tensors) < 1e-4
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), run.state_dict()[name], name)


@pytest.fixture
def weighted(arrays):
    weights = np.random.default_rng(0).random(arrays["edge_index"].shape[1], np.float32)
    return Dataset.from_arrays(**arrays, edge_weight=weights)


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_edge_weights_go_to_models_of_pyg(weighted, pyg, kind):
    settings = {**QUICK, "model": kind, "norm": "layer"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalographWarning)  # gat does not use them
        run = halograph.train(weighted, **settings)
    assert largest_difference(run, run.to_pyg(), run.pyg_data()) < 1e-4


@pytest.mark.parametrize("kind", ["sage", "gin"])
def test_edge_weights_that_pyg_ignores_are_refused(weighted, data, pyg, kind, tmp_path):
    settings = {**QUICK, "model": kind}
    weighted.save(tmp_path / "g")
    in_memory, on_disk = halograph.train(weighted, **settings), halograph.train(tmp_path / "g", **settings)
    for refused in (in_memory.to_pyg, on_disk.to_pyg, in_memory.pyg_data, lambda: in_memory.pyg_data(weighted)):
        with pytest.raises(InputError, match="edge_weights"):
            refused()
    unweighted = halograph.train(weighted, **settings, edge_weights=False)
    assert largest_difference(unweighted, unweighted.to_pyg(), unweighted.pyg_data()) < 1e-4
    # Where the data are gone, those that are given are checked.
    again = pickle.loads(pickle.dumps(in_memory))
    again.to_pyg()
    with pytest.raises(InputError, match="edge_weights"):
        again.pyg_data(weighted)


def test_pyg_data_of_other_data(arrays, pyg, tmp_path):
    """Columns are matched as by `predict`."""
    names = list("abcde")
    run = halograph.train(Dataset.from_arrays(**arrays, feature_names=names), **QUICK, normalize="columns")
    model = run.to_pyg()
    order = [3, 0, 4, 1, 2]
    mixed = Dataset.from_arrays(**{**arrays, "x": arrays["x"][:, order]}, feature_names=[names[k] for k in order])
    mixed.save(tmp_path / "mixed")
    for other in (mixed, tmp_path / "mixed", str(tmp_path / "mixed")):
        np.testing.assert_array_equal(run.predict(other), run.predict())
        assert largest_difference(run, model, run.pyg_data(other)) < 1e-4
    small = make_arrays(nodes=31, seed=5)
    small["x"] = small["x"][:, ::-1]
    new = Dataset.from_arrays(**small)
    logits = model(run.pyg_data(new).x, run.pyg_data(new).edge_index).detach().numpy()
    np.testing.assert_allclose(logits, run.predict(new), atol=1e-4)
    for names, part in ((list("abcdx"), "missing: e"), (list("aabcd"), "columns are called"), (list("abcd"), "missing: e")):
        other = Dataset.from_arrays(arrays["edge_index"], arrays["x"][:, : len(names)], feature_names=names)
        for refusing in (run.predict, run.pyg_data):
            with pytest.raises(InputError, match=part):
                refusing(other)
    for refusing in (run.predict, run.pyg_data):
        with pytest.raises(InputError, match="4 features; .* trained on 5"):
            refusing(Dataset.from_arrays(arrays["edge_index"], arrays["x"][:, :4]))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "gcnii"},
        {"model": "resgcn"},
        {"model": "gcn", "linear_layers": 1},
        {"model": "gat", "heads": 2, "output_heads": 1},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_models_that_pyg_does_not_have_are_refused(data, pyg, settings):
    run = halograph.train(data, **{**QUICK, **settings})
    with pytest.raises(InputError, match=list(settings)[-1] if len(settings) > 1 else settings["model"]):
        run.to_pyg()


def test_weights_learnt_elsewhere_change_nothing_here(data, pyg):
    run = halograph.train(data, **QUICK)
    before = run.predict()
    with pyg.torch.no_grad():
        for parameter in run.to_pyg().parameters():
            parameter.zero_()
    for array in run.state_dict().values():
        array[:] = 0
    np.testing.assert_array_equal(run.predict(), before)


@pytest.mark.parametrize("missing", ["torch", "torch_geometric", "pandas", "matplotlib"])
def test_missing_packages_are_named(data, monkeypatch, missing):
    run = halograph.train(data, **QUICK)
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # `import` of it fails
    needs_it = {"pandas": run.history.to_pandas, "matplotlib": run.plot}.get(missing, run.to_pyg)
    with pytest.raises(ImportError, match=missing):
        needs_it()
