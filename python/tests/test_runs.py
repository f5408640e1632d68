"""Finished runs: predictions, weights, pickles, reports."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import QUICK, assert_same_weights, halograph_command, make_arrays

import halograph
from halograph import Dataset, InputError, train


@pytest.fixture
def run(data):
    return train(data, **QUICK)


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def test_predictions(data, run):
    logits = run.predict()
    assert logits.shape == (60, 3) and logits.dtype == np.float32 and np.isfinite(logits).all()
    np.testing.assert_array_equal(run.predict(data, output="logits"), logits)
    np.testing.assert_allclose(run.predict(output="probabilities"), softmax(logits), rtol=1e-5)
    classes = run.predict(output="classes")
    assert classes.dtype == np.int64
    np.testing.assert_array_equal(classes, logits.argmax(axis=1))
    for name in ["train", "val", "test"]:
        nodes = getattr(data, f"{name}_mask")
        assert getattr(run.scores, name) == pytest.approx((classes == data.y)[nodes].mean())
    evaluated = run.evaluate()
    assert (evaluated.train, evaluated.val, evaluated.test) == (run.scores.train, run.scores.val, run.scores.test)


def test_multi_label_predictions(arrays):
    flags = np.eye(3, dtype=np.uint8)[arrays["y"]]
    run = train(Dataset.from_arrays(**{**arrays, "y": flags}), **{**QUICK, "epochs": 30})
    probabilities = run.predict(output="probabilities")
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-run.predict())), rtol=1e-5)
    classes = run.predict(output="classes")
    assert classes.dtype == np.uint8
    np.testing.assert_array_equal(classes, probabilities > 0.5)


def test_predictions_on_new_data(run):
    new = Dataset.from_arrays(**make_arrays(nodes=31, seed=5))
    assert run.predict(new).shape == (31, 3)
    with pytest.raises(InputError, match="features"):
        run.predict(Dataset.from_arrays(**make_arrays(features=4)))
    with pytest.raises(InputError, match="class"):
        run.evaluate(Dataset.from_arrays(**make_arrays(classes=4)))


def test_columns_are_matched_by_name(arrays):
    names = list("abcde")
    run = train(Dataset.from_arrays(**arrays, feature_names=names), **QUICK)
    mixed = {**arrays, "x": arrays["x"][:, ::-1].copy()}
    np.testing.assert_array_equal(run.predict(Dataset.from_arrays(**mixed, feature_names=names[::-1])), run.predict())
    with pytest.raises(InputError, match="e"):
        run.predict(Dataset.from_arrays(**mixed, feature_names=list("abcdx")))


def test_embeddings(data, tmp_path):
    run = train(data, **{**QUICK, "layers": 3})
    first, last = run.embeddings(1), run.embeddings()
    assert first.shape == last.shape == (60, 8) and first.dtype == np.float32
    np.testing.assert_array_equal(run.embeddings(2, data), last)
    assert not np.array_equal(first, last)
    run.save(tmp_path / "run")
    data.save(tmp_path / "g")
    command = ["predict", tmp_path / "run", "--data", tmp_path / "g", "--embeddings", 1, "-o", tmp_path / "first.npy"]
    assert halograph_command(*command).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "first.npy"), first)
    for layer in (0, 3, -1):
        with pytest.raises(InputError, match="layer"):
            run.embeddings(layer)


def test_state_dict(run):
    shapes = {name: array.shape for name, array in run.state_dict().items()}
    assert shapes == {
        "convs.0.lin.weight": (8, 5),
        "convs.0.bias": (8,),
        "convs.1.lin.weight": (3, 8),
        "convs.1.bias": (3,),
    }
    assert {array.dtype for array in run.state_dict().values()} == {np.dtype(np.float32)}


def test_precision_of_weights(data):
    run = train(data, precision="f64", **QUICK)
    assert {array.dtype for array in run.state_dict().values()} == {np.dtype(np.float64)}
    assert run.predict().dtype == np.float32


def test_history_is_a_dict_of_arrays(run):
    history = run.history
    assert {"epoch", "loss", "lr", "seconds", "train", "val", "test", "val_loss"} <= set(history) == set(dict(history))
    assert {array.shape for array in history.values()} == {(3,)} and len(history) == len(list(history))
    assert history["loss"].dtype == np.float64
    frame = history.to_pandas()
    assert list(frame.columns) == list(history)
    for name in history:
        np.testing.assert_array_equal(frame[name], history[name])
    with pytest.raises(KeyError):
        history["losses"]


def test_repr_and_summary(run):
    assert repr(run).startswith("Run(gcn, arrays, epochs=3, train=")
    assert run.summary["epochs"] == 3 and run.summary["metric"] == "accuracy"
    assert run.path is None and run.is_leader and not run.interrupted


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_pickles(data, tmp_path, where):
    if where == "disk":
        data.save(tmp_path / "g")
        data = Dataset.open(tmp_path / "g")
    run = train(data, **QUICK)
    assert copy.copy(run) is run and copy.deepcopy(run) is run  # with its data
    for again in (pickle.loads(pickle.dumps(run)),):
        assert_same_weights(again.state_dict(), run.state_dict())
        assert (again.scores, again.summary, again.notes, again.config) == (run.scores, run.summary, run.notes, run.config)
        for name in run.history:
            np.testing.assert_array_equal(again.history[name], run.history[name])
        np.testing.assert_array_equal(again.predict(data), run.predict())
    if where == "disk":
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(run)).predict(), run.predict())
    else:
        with pytest.raises(InputError, match="data"):
            pickle.loads(pickle.dumps(run)).predict()


def test_pickles_are_read_by_another_process(run, data, tmp_path):
    data.save(tmp_path / "g")
    (tmp_path / "run.pickle").write_bytes(pickle.dumps(run))
    np.save(tmp_path / "logits.npy", run.predict())
    code = "import pickle, sys, numpy; run = pickle.load(open(sys.argv[1] + '/run.pickle', 'rb')); " \
           "assert (run.predict(sys.argv[1] + '/g') == numpy.load(sys.argv[1] + '/logits.npy')).all()"
    subprocess.run([sys.executable, "-W", "error", "-c", code, tmp_path], check=True, timeout=60)


def test_damaged_pickles_are_refused(run):
    content = pickle.dumps(run)
    survived = 0
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        try:
            pickle.loads(damaged)
            survived += 1
        except MemoryError:
            raise
        except Exception:  # noqa: S110 - any exception is right; the interpreter must survive
            pass
    assert survived < 60


def test_saving_and_loading(run, data, tmp_path):
    run.save(tmp_path / "run")
    again = halograph.load(tmp_path / "run")
    assert again.path == str(tmp_path / "run")
    assert_same_weights(again.state_dict(), run.state_dict())
    assert again.scores == run.scores
    for name in run.history:
        np.testing.assert_array_equal(again.history[name], run.history[name])
    with pytest.raises(InputError, match="already"):
        run.save(tmp_path / "run")
    run.save(tmp_path / "run", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(InputError):
        run.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "notes.txt").exists()
    with pytest.raises(InputError, match="nowhere"):
        halograph.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="mine"):
        halograph.load(tmp_path / "mine")


def test_reports(run, tmp_path):
    report = run.report()
    assert report.html.lower().startswith("<!doctype html>") and "arrays" in report.html
    assert "<iframe" in report._repr_html_()
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report.html
    with pytest.raises(InputError, match="exists"):
        report.save(tmp_path / "report.html")
    report.save(tmp_path / "report.html", overwrite=True)
    (tmp_path / "mine.html").write_text("keep")
    with pytest.raises(InputError):
        report.save(tmp_path / "mine.html", overwrite=True)
    assert (tmp_path / "mine.html").read_text() == "keep"


def test_plots(run):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = run.plot()
    assert axes.get_xlabel() and len(axes.figure.axes[0].lines) >= 1
    figure, mine = plt.subplots()
    assert run.plot(mine) is mine
    plt.close("all")

