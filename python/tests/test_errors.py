"""Errors name place, problem and remedy; nothing that is passed ends the interpreter."""

import signal
import textwrap

import pytest
from conftest import QUICK, run_python

import halograph
from halograph import Diverged, HalographError, InputError, OutOfMemory, PeerLost, train


def test_the_classes_fit_those_of_python():
    assert issubclass(InputError, ValueError) and issubclass(OutOfMemory, MemoryError)
    for error in (InputError, OutOfMemory, Diverged, PeerLost):
        assert issubclass(error, HalographError) and error.__module__ == "halograph"


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"hiden": 8}, ["hiden", "hidden"]),
        ({"weight_decy": 8}, ["weight_decy", "weight_decay"]),
        ({"model": "gnc"}, ["gnc", "gcn"]),
        ({"model": 3}, ["3"]),
        ({"hidden": 0}, ["hidden", "0"]),
        ({"hidden": -1}, ["hidden", "-1"]),
        ({"hidden": 1.5}, ["hidden", "1.5"]),
        ({"hidden": "many"}, ["hidden", "many"]),
        ({"lr": float("nan")}, ["lr", "NaN"]),
        ({"lr": [1, 2]}, ["lr"]),
        ({"lr": object()}, ["lr", "object"]),
        ({"lr": 1j}, ["lr", "complex"]),
        ({"epochs": 10**30}, ["epochs"]),
        ({"dropout": 1.5}, ["dropout", "1.5"]),
        ({"dropout": "half"}, ["dropout", "half"]),
        ({"strategy": "minibatches"}, ["minibatches", "minibatch"]),
        ({"fanout": [5]}, ["fanout"]),
        ({"ranks": 4, "strategy": "single"}, ["ranks", "single"]),
        ({"model": "gat", "heads": 3, "hidden": 8}, ["heads", "3", "8"]),
        ({"metric": "auc"}, ["auc"]),
        ({"class_weights": [1, 2]}, ["class_weights"]),
        ({"class_weights": "nowhere.csv"}, ["nowhere.csv"]),
        ({"class_weights": {0: 1.0, 1: 2.0}}, ["class_weights", "list"]),
        ({"config": "nowhere.toml"}, ["nowhere.toml"]),
        ({"split_index": 1}, ["split", "1"]),
        ({"json": True}, ["json"]),
        ({"tensorboard": True}, ["tensorboard"]),
        ({"weight_decay_for": {"nothing": 1.0}}, ["nothing"]),
        ({"trace": "/nowhere/trace.json", "ranks": 2}, ["/nowhere/trace.json"]),
    ],
    ids=lambda case: "-".join(f"{k}={v}" for k, v in case.items())[:40] if isinstance(case, dict) else "",
)
def test_wrong_settings(data, settings, parts):
    with pytest.raises(InputError) as error:
        train(data, **{**QUICK, **settings})
    for part in parts:
        assert part in str(error.value), f"{part!r} is not in: {error.value}"


def test_the_parts_of_an_error(data):
    with pytest.raises(InputError) as error:
        train(data, hiden=8, **QUICK)
    error = error.value
    assert "hiden" in error.place + error.problem and "hidden" in str(error)
    assert error.problem in str(error) and error.help in str(error)


def test_wrong_datasets(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        train(tmp_path / "nowhere", **QUICK)
    for wrong in (None, 3, [1, 2], object()):
        with pytest.raises((InputError, TypeError)):
            train(wrong, **QUICK)


def test_a_diverged_run(data):
    with pytest.raises(Diverged, match="lr") as error:
        train(data, **{**QUICK, "lr": 1e38, "optimizer": "sgd", "epochs": 20})
    assert "epoch" in str(error.value) and error.value.help


def test_too_much_memory(data):
    for force in (False, True):  # weights alone that do not fit are always refused
        with pytest.raises(OutOfMemory, match="MiB are free"):
            train(data, **{**QUICK, "hidden": 1_000_000, "layers": 3}, force=force)


def test_wrong_callbacks(data):
    for callbacks in ([3], 3, [None]):
        with pytest.raises((TypeError, InputError), match="callback|callable|iterable"):
            train(data, callbacks=callbacks, **QUICK)


SWEEP = '''
import itertools, random, sys, warnings
import numpy as np
import halograph
from halograph import Dataset

warnings.simplefilter("ignore", halograph.HalographWarning)
rng = random.Random(SEED)
odd = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**40, 0.0, -0.0, 0.5, -0.5, 1e-320, 1e300,
    float("nan"), float("inf"), float("-inf"), "", "a", "\\x00", "é" * 50, "\\ud800", "1e999", "]", "[", "=", "gcn", "1",
    b"", b"\\xff", (), [], {}, set(), [0], [1, 2], [[]], [[0]], {"a": 1}, {1: 2}, {"convs.0": {}}, [None], ["a", 1],
    object(), int, len, lambda *a: None, 1j, slice(None), ..., range(3), np.nan, np.int8(-1), np.uint64(2**63),
    np.array(3), np.array([]), np.array([1, 2]), np.array([[0, 1], [1, 2]]), np.ones((3, 2)), np.ones((2, 3), bool),
    np.zeros((0, 2)), np.zeros((2, 0), int), np.zeros((3, 0)), np.array(["a"]), np.array([None]), np.array(1, "M8[s]"),
    np.zeros(3, [("a", int)]), np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (3, 2), (0, 0)),
    np.ma.masked_array([[1.0, 2.0]], [[True, False]]), memoryview(b"abcd"), np.ones((1, 1, 1)), np.float16(1), np.longdouble(1),
]
x = np.arange(6, dtype=np.float32).reshape(3, 2)
good = dict(edge_index=np.array([[0, 1], [1, 2]]), x=x.copy(), y=[0, 1, 0], train_mask=[0, 1], val_mask=[2])
data = Dataset.from_arrays(**good)
quick = dict(model="gcn", hidden=4, layers=2, epochs=2, threads=1, progress=False)
run = halograph.train(data, **quick)
options = "edge_index x y train_mask val_mask test_mask edge_weight name directed keep_self_loops task metric class_names " \\
    "feature_names ids copy".split()
settings = "model hidden layers heads norm activation dropout input_dropout lr epochs optimizer momentum weight_decay " \\
    "weight_decay_for clip schedule patience metric class_weights seed precision strategy partition overlap staleness " \\
    "warmup_epochs smooth gamma batch_size fanout sampler macrobatch batch_memory row_cache stages chunks history_epochs " \\
    "steps_per_epoch activation_memory eval_every normalize split_index inductive edge_weights project alpha theta train_eps " \\
    "deadline force resume overwrite callbacks config progress".split()

def call(what, function, *args, **kwargs):
    global count
    count += 1
    try:
        return function(*args, **kwargs)
    except (halograph.HalographError, TypeError, OverflowError, UnicodeError, ImportError, AttributeError) as error:
        assert "panic" not in str(error).lower(), (what, error)
        errors.add(type(error).__name__)
    except ValueError as error:  # of numpy
        assert "panic" not in str(error).lower(), (what, error)
        errors.add("ValueError")
    except Exception as error:
        raise SystemExit(f"{what}: {type(error).__name__}: {error}") from error
    except BaseException as error:
        raise SystemExit(f"{what}: {type(error).__name__}: {error}") from error

count, errors = 0, set()
BODY
print(count, sorted(errors))
'''

BODIES = {
    "datasets": """
for name, value in itertools.product(options, odd):
    call((name, repr(value)), Dataset.from_arrays, **{**good, "x": x.copy(), name: value})
for _ in range(600):
    chosen = {name: rng.choice(odd) for name in rng.sample(options, 3)}
    call(repr(chosen), Dataset.from_arrays, **{**good, "x": x.copy(), **chosen})
for value in odd:
    for constructor in (Dataset.from_scipy, Dataset.from_pandas):
        call(("two", repr(value)), constructor, value, value)
        call(("two", repr(value)), constructor, good["edge_index"], value)
    for constructor in (Dataset.from_pyg, Dataset.from_dgl, Dataset.from_networkx):
        call(("one", repr(value)), constructor, value)
    if not (isinstance(value, str) and value):  # text names a path
        call(("path", repr(value)), Dataset.open, value)
        call(("make", repr(value)), Dataset.make, value)
        call(("save", repr(value)), data.save, value)
call("new", Dataset)
call("new of arrays", Dataset, 1, 2)
call("new without init", Dataset.__new__, Dataset)
""",
    "settings": """
for name, value in itertools.product(settings, odd):
    if name == "epochs" and type(value) in (int, float) and value > 100:
        continue  # legal, but long
    call((name, repr(value)), halograph.train, data, **{**quick, name: value})
for _ in range(300):
    chosen = {name: rng.choice(odd) for name in rng.sample([n for n in settings if n != "epochs"], 3)}
    call(repr(chosen), halograph.train, data, **{**quick, **chosen})
for value in odd:
    if not (type(value) is int and value > 100):
        call(("ranks", repr(value)), halograph.train, data, **quick, ranks=value)
""",
    "runs": """
import pickle
for value in odd:
    for function in (run.predict, run.evaluate, run.embeddings, run.save, run.report().save, halograph.load):
        if not (isinstance(value, str) and value):
            call((function, repr(value)), function, value)
    call(("output", repr(value)), run.predict, output=value)
    call(("layer", repr(value)), run.embeddings, value, data)
    call(("history", repr(value)), lambda: run.history.get(value) if value.__hash__ else None)
    call(("setstate", repr(value)), lambda: run.__setstate__(value))
    call(("params", repr(value)), lambda: halograph.NodeClassifier(a=value).set_params(b=value).fit(data))
for kind in (halograph.Run, halograph.History, halograph.Report):
    call(kind, kind)
    call(kind, lambda: repr(kind.__new__(kind)))
import halograph._halograph as core
for name in dir(core):  # not public, yet it must not end the interpreter
    if callable(getattr(core, name)) and not name.startswith("__") and name not in ("main", "run_command"):
        for arguments in [(), (None,), (1,), ("",), (object(), object()), (x,), (x, x), (None, None, None)]:
            call((name, repr(arguments)), getattr(core, name), *arguments)
""",
}


@pytest.mark.parametrize("part", BODIES)
def test_odd_arguments_raise_and_nothing_else(part, tmp_path):
    code = textwrap.dedent(SWEEP).replace("SEED", "0").replace("BODY", BODIES[part])
    done = run_python(code, cwd=tmp_path)
    assert done.returncode >= 0, f"ended by {signal.Signals(-done.returncode).name}:\n{done.stderr}"
    assert done.returncode == 0 and "panicked" not in done.stderr, done.stderr
    count, errors = done.stdout.split(" ", 1)
    assert int(count) > 100 and "InputError" in errors
