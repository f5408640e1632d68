"""Training: the same bits as the command line, callbacks, strategies, threads."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import QUICK, assert_same_weights, halograph_command, make_arrays, read_safetensors

import halograph
from halograph import Dataset, Epoch, Evaluation, HalographWarning, InputError, NodeClassifier, train


def flags(settings):
    """Returns settings as flags of the command line."""
    words = []
    for key, value in settings.items():
        if key == "progress":
            continue
        value = ",".join(map(str, value)) if isinstance(value, list) else value
        words += [f"--{key.replace('_', '-')}", value]
    return words


COMMAND_LINE_CASES = {
    "gcn": {},
    "defaults": {"model": "sage", "hidden": 128, "layers": 3},
    "gat in f64": {"model": "gat", "heads": 2, "precision": "f64", "seed": 7},
    "minibatch": {"strategy": "minibatch", "batch_size": 8, "fanout": [3, 2], "patience": 2, "epochs": 6},
    "partition": {"ranks": 4, "strategy": "partition"},
    "pipelined": {"ranks": 2, "strategy": "pipelined", "warmup_epochs": 1, "epochs": 5},
    "minibatch on ranks": {"ranks": 4, "strategy": "minibatch", "batch_size": 8},
    "split": {"ranks": 4, "strategy": "split", "batch_size": 8},
    "layers": {"ranks": 4, "strategy": "layers", "layers": 4, "model": "sage"},
}


@pytest.mark.parametrize("case", COMMAND_LINE_CASES)
def test_weights_are_those_of_the_command_line(data, case, tmp_path):
    settings = {**QUICK, **COMMAND_LINE_CASES[case]}
    data.save(tmp_path / "g")
    run_dir = tmp_path / "run"
    done = halograph_command("train", tmp_path / "g", "-o", run_dir, "--json", *flags(settings))
    assert done.returncode == 0, done.stderr
    run = train(data, **settings)
    assert_same_weights(run.state_dict(), read_safetensors(run_dir / "model.safetensors"))

    # What is reported of the run is the same, too, apart from times and memory.
    summary = json.loads(done.stdout)
    for key in ["model", "strategy", "ranks", "metric", "loss", "loss_history", "train", "val", "test", "best_epoch", "classes"]:
        assert run.summary[key] == summary[key], key
    assert (run.scores.train, run.scores.val, run.scores.test) == (summary["train"], summary["val"], summary["test"])
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for key in ["epoch", "loss", "lr", "train", "val", "test", "val_loss"]:
        np.testing.assert_array_equal(run.history[key], [line[key] for line in lines], key)
    config = json.loads((run_dir / "run.json").read_text())["config"]
    assert {table: config[table] for table in ["data", "model", "train", "layers"]} == run.config


@pytest.mark.parametrize("out", [None, "run"], ids=["in memory", "on disk"])
def test_loaded_runs_of_the_command_line_predict_the_same(data, tmp_path, out):
    data.save(tmp_path / "g")
    run = train(tmp_path / "g", out=out and tmp_path / out, **QUICK)
    if out is None:
        run.save(tmp_path / "run")
    done = halograph_command("predict", tmp_path / "run", "-o", tmp_path / "logits.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), run.predict())
    np.testing.assert_array_equal(halograph.load(tmp_path / "run").predict(data), run.predict())
    done = halograph_command("eval", tmp_path / "run", "--json")
    assert json.loads(done.stdout)["test"] == run.scores.test
    assert run.evaluate().test == run.scores.test


def test_threads_do_not_change_bits(data):
    runs = [train(data, **{**QUICK, "threads": threads}) for threads in (1, 3)]
    assert_same_weights(runs[0].state_dict(), runs[1].state_dict())


def test_settings_come_from_a_file_too(data, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[model]\nkind = 'gat'\nhidden = 12\n[train]\nepochs = 2\n")
    run = train(data, config=file, hidden=8, progress=False)
    assert (run.config["model"]["kind"], run.config["model"]["hidden"], run.config["train"]["epochs"]) == ("gat", 8, 2)


def test_every_kind_of_value_is_a_setting(data):
    settings = {
        "weight_decay_for": {"convs.0": 5e-4},
        "class_weights": [1.0, 2, 0.5],
        "lr": np.float32(0.5),
        "epochs": np.int64(2),
        "self_in_mean": None,  # its default
        "optimizer": "sgd",
        "clip": 1,
    }
    config = train(data, **{**QUICK, **settings}).config
    assert config["train"]["weight_decay_for"] == {"convs.0": 5e-4}
    assert config["train"]["class_weights"] == [1, 2, 0.5]
    assert (config["train"]["lr"], config["train"]["epochs"], config["train"]["clip"]) == (0.5, 2, 1)


def test_a_setting_without_effect_is_a_warning(data):
    with pytest.warns(HalographWarning, match="heads"):
        run = train(data, heads=2, **QUICK)
    assert any("heads" in note for note in run.notes)


def test_warnings_are_about_the_line_of_the_caller(data):
    for use in (train, lambda data, **settings: NodeClassifier(**settings).fit(data)):
        with pytest.warns(HalographWarning) as warned:
            use(data, heads=2, **QUICK)
        assert {warning.filename for warning in warned} == {__file__}


def test_callbacks_see_epochs_and_evaluations(data):
    events, other = [], []
    run = train(data, callbacks=[events.append, other.append], **{**QUICK, "epochs": 4, "eval_every": 2})
    assert [(type(event), event.epoch) for event in events] == [
        (Epoch, 1),
        (Epoch, 2),
        (Evaluation, 2),
        (Epoch, 3),
        (Epoch, 4),
        (Evaluation, 4),
    ]
    assert other == events
    epochs = [event for event in events if isinstance(event, Epoch)]
    np.testing.assert_array_equal(run.history["loss"], [event.loss for event in epochs])
    np.testing.assert_array_equal(run.history["seconds"], [event.seconds for event in epochs])
    assert {event.epochs for event in epochs} == {4}
    evaluations = {event.epoch: event for event in events if isinstance(event, Evaluation)}
    for key in ["train", "val", "test", "val_loss"]:
        expected = [getattr(evaluations[epoch], key) if epoch in evaluations else np.nan for epoch in (1, 2, 3, 4)]
        np.testing.assert_array_equal(run.history[key], expected, key)
    best = evaluations[4].best_epoch
    assert run.summary["best_epoch"] == best and run.scores.val == evaluations[best].val


@pytest.mark.parametrize("settings", [{}, {"ranks": 3}, {"strategy": "minibatch", "batch_size": 8}], ids=str)
def test_callbacks_stop(data, settings):
    stop_at_2 = lambda event: event.epoch < 2  # noqa: E731
    run = train(data, callbacks=[stop_at_2], **{**QUICK, "epochs": 50, **settings})
    assert run.interrupted and list(run.history["epoch"]) == [1, 2]
    # The weights are those after two epochs, or after one, if they were better.
    whole = train(data, **{**QUICK, "epochs": 2, **settings})
    assert not whole.interrupted
    losses = [r.history["loss"] for r in (run, whole)]
    np.testing.assert_array_equal(*losses)
    if settings != {"ranks": 3}:
        assert_same_weights(run.state_dict(), whole.state_dict())
    assert run.predict().shape == (60, 3)


def test_only_false_stops(data):
    for value in (None, 0, "", [], np.array([])):
        assert not train(data, callbacks=[lambda event, value=value: value], **QUICK).interrupted


@pytest.mark.parametrize("settings", [{}, {"ranks": 3}, {"strategy": "minibatch", "batch_size": 8}], ids=str)
def test_exceptions_of_callbacks_propagate(data, settings, tmp_path):
    class Mine(Exception):
        pass

    raised = Mine("of epoch 2")

    def fail(event):
        if event.epoch == 2:
            raise raised

    after = []
    with pytest.raises(Mine) as caught:
        train(data, callbacks=[fail, after.append], out=tmp_path / "run", **{**QUICK, "epochs": 50, **settings})
    assert caught.value is raised and {event.epoch for event in after} == {1}
    # What was learnt is there, and the run resumes to the bits of a run that nothing stopped.
    resumed = train(data, out=tmp_path / "run", resume=True, **{**QUICK, "epochs": 4, **settings})
    assert_same_weights(resumed.state_dict(), train(data, **{**QUICK, "epochs": 4, **settings}).state_dict())


def test_an_exception_in_the_first_epoch(data):
    for error in (KeyboardInterrupt(), SystemExit(3), ValueError("mine")):

        def fail(event, error=error):
            raise error

        with pytest.raises(type(error)) as caught:
            train(data, callbacks=[fail], **QUICK)
        assert caught.value is error


def test_a_callback_may_train(data):
    inner = []
    run = train(data, callbacks=[lambda event: inner.append(train(data, **QUICK)) if not inner else None], **QUICK)
    assert_same_weights(inner[0].state_dict(), run.state_dict())


def test_runs_on_disk_are_not_replaced_silently(data, tmp_path):
    out = tmp_path / "run"
    first = train(data, out=out, **QUICK)
    assert first.path == str(out)
    with pytest.raises(InputError, match="resume"):
        train(data, out=out, **QUICK)
    assert_same_weights(halograph.load(out).state_dict(), first.state_dict())
    other = train(data, out=out, overwrite=True, seed=1, **QUICK)
    assert not np.array_equal(other.predict(), first.predict())
    with pytest.raises(InputError, match="lr"):
        train(data, out=out, resume=True, lr=0.5, seed=1, **QUICK)
    with pytest.raises(InputError, match="out"):
        train(data, resume=True, **QUICK)


def test_runs_in_threads_are_independent(data):
    datasets = [data, Dataset.from_arrays(**make_arrays(seed=1))]
    settings = {**QUICK, "epochs": 30}
    expected = [train(dataset, **settings).state_dict() for dataset in datasets]
    both_train = threading.Barrier(2, timeout=60)

    def meet(event):
        """Neither run goes beyond its first epoch before the other is there."""
        if isinstance(event, Epoch) and event.epoch == 1:
            both_train.wait()

    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda dataset: train(dataset, callbacks=[meet], **settings), datasets)
        for run, weights in zip(runs, expected, strict=True):
            assert_same_weights(run.state_dict(), weights)


def test_inductive_and_early_stopping(data):
    run = train(data, **{**QUICK, "epochs": 300, "patience": 3, "inductive": True})
    assert not run.interrupted and len(run.history["epoch"]) < 300
    assert run.summary["ending"] == "stopped-early"


@pytest.mark.parametrize("strategy", ["partition", "minibatch", "split", "layers", "pipelined"])
def test_four_ranks(data, strategy):
    settings = {**QUICK, "epochs": 40, "hidden": 16, "lr": 0.05, "layers": 4 if strategy == "layers" else 2, "ranks": 4}
    run = train(data, strategy=strategy, **settings)
    assert run.summary["ranks"] == 4 and run.summary["strategy"] == strategy and run.is_leader
    assert run.scores.train > 0.8, run.scores
    again = train(data, strategy=strategy, **{**settings, "threads": 2})
    assert_same_weights(run.state_dict(), again.state_dict())


def test_ranks_compute_what_one_process_does(data):
    losses = [train(data, precision="f64", ranks=ranks, **QUICK).history["loss"] for ranks in (1, 4)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)


def test_shards_are_data_too(data, tmp_path):
    data.save(tmp_path / "g")
    done = halograph_command("partition", tmp_path / "g", "-k", 2, "-o", tmp_path / "shards", "-q")
    assert done.returncode == 0, done.stderr
    run = train(tmp_path / "shards", **QUICK)
    assert_same_weights(run.state_dict(), train(data, ranks=2, **QUICK).state_dict())


def test_traces_are_written(data, tmp_path):
    train(data, ranks=2, trace=tmp_path / "trace.json", **QUICK)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
