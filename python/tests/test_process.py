"""Ctrl-C, memory, signals: tests that need a process of their own."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT, run_python

START = """
import os, signal, sys, threading, time
import numpy as np
import halograph
sys.path.insert(0, "TESTS")
from conftest import QUICK, make_arrays, assert_same_weights
data = halograph.Dataset.from_arrays(**make_arrays())
"""


def program(code, **values):
    code = textwrap.dedent(START) + textwrap.dedent(code)
    for name, value in {"TESTS": ROOT / "python" / "tests", **values}.items():
        code = code.replace(name, str(value))
    return code


def check(code, **values):
    done = run_python(program(code, **values))
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
    return done.stdout


INTERRUPT = """
settings = {**QUICK, "epochs": 1_000_000, **SETTINGS}
def interrupt(event):
    if isinstance(event, halograph.Epoch) and event.epoch == 3:  # once
        # Of the whole process, as a terminal does it; it arrives in a later epoch, while Rust trains.
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
"""


@pytest.mark.parametrize(
    "settings",
    [{}, {"ranks": 2}, {"strategy": "minibatch", "batch_size": 1, "eval_every": 2}, {"strategy": "split", "ranks": 2, "batch_size": 4}],
    ids=str,
)
def test_ctrl_c_keeps_what_was_learnt(settings, tmp_path):
    check(
        INTERRUPT
        + """
run = halograph.train(data, callbacks=[interrupt], out="OUT/run", **settings)
assert run.interrupted and len(run.history["epoch"]) >= 3, run
assert run.predict().shape == (60, 3) and run.scores.val is not None
# The run resumes to the bits of one that was never interrupted.
epochs = len(run.history["epoch"]) + 1
resumed = halograph.train(data, out="OUT/run", resume=True, **{**settings, "epochs": epochs})
assert not resumed.interrupted
assert_same_weights(resumed.state_dict(), halograph.train(data, **{**settings, "epochs": epochs}).state_dict())
# Ctrl-C works as before.
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    sys.exit(0)
sys.exit("no KeyboardInterrupt after training")
""",
        SETTINGS=settings,
        OUT=tmp_path,
    )


def test_ctrl_c_before_the_first_evaluation():
    check(
        INTERRUPT
        + """
run = halograph.train(data, callbacks=[interrupt], **{**settings, "eval_every": 1_000_000})
assert run.interrupted and run.scores.val is None
assert run.predict().shape == (60, 3)  # the newest weights
""",
        SETTINGS={},
    )


def test_ctrl_c_before_there_is_anything():
    """Long work that has nothing to keep ends with KeyboardInterrupt."""
    check(
        """
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    halograph.Dataset.make("products")  # minutes
except KeyboardInterrupt:
    sys.exit(0)
sys.exit("no KeyboardInterrupt")
"""
    )


def test_ctrl_c_before_the_first_step():
    """A note is issued before the first epoch; it waits until Python has seen the signal."""
    check(
        """
import warnings
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
warnings.simplefilter("always")
warnings.showwarning = interrupt
try:
    run = halograph.train(data, heads=2, **QUICK)
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(f"no KeyboardInterrupt: {run}")
"""
    )


def test_the_gil_is_released():
    """Another thread runs Python code while Rust trains; otherwise the training would never end."""
    check(
        """
def work():
    for i in range(1000):
        time.sleep(0.0001)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=work).start()
assert halograph.train(data, **{**QUICK, "epochs": 100_000_000}).interrupted
"""
    )


def test_ctrl_c_while_another_thread_trains():
    """Python gives Ctrl-C to the main thread; the training goes on and the interpreter ends when it is over."""
    check(
        """
stop = threading.Event()
runs = []
def work():
    callback = lambda event: not stop.is_set()
    runs.append(halograph.train(data, callbacks=[callback], **{**QUICK, "epochs": 1_000_000}))
worker = threading.Thread(target=work)
worker.start()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    time.sleep(30)
except KeyboardInterrupt:
    stop.set()
worker.join()
assert runs[0].interrupted and len(runs[0].history["epoch"]) < 1_000_000
"""
    )


def test_signals_of_python_are_handled_while_training():
    """A handler of the user runs while Rust trains, and one that raises ends the run."""
    check(
        """
class Alarm(Exception):
    pass
def ring(*_):
    raise Alarm
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    halograph.train(data, **{**QUICK, "epochs": 1_000_000})
except Alarm:
    sys.exit(0)
sys.exit("no exception of the handler")
"""
    )


def test_memory_returns_to_its_baseline():
    """100 trainings with all their threads: neither memory nor threads nor files accumulate."""
    check(
        """
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def count(folder):
    return len(os.listdir(f"/proc/self/{folder}"))
def wait_for_threads():  # a pool that is dropped ends soon, not at once
    for _ in range(200):
        if count("task") <= threads:
            return
        time.sleep(0.05)
    sys.exit(f"{count('task')} threads are left of {threads}")
threads = count("task")
cases = [{}, {"ranks": 2}, {"strategy": "minibatch", "batch_size": 8, "threads": 2}, {"model": "gat", "threads": 2}]
def train(times):
    for i in range(times):
        data = halograph.Dataset.from_arrays(**make_arrays(nodes=300, features=50))
        run = halograph.train(data, **{**QUICK, "hidden": 64, **cases[i % 4]})
        run.predict()
        try:
            halograph.train(data, **QUICK, hiden=3)
        except halograph.InputError:
            pass
train(20)
wait_for_threads()
before, files = resident(), count("fd")
train(100)
wait_for_threads()
assert count("fd") == files, (files, count("fd"))
# What 100 runs and datasets hold is some 20 MB.
assert resident() - before < 6 << 20, (before, resident())
"""
    )


def test_features_are_not_copied():
    """Peak memory of `from_arrays` and of the dataset: far less than the features once more."""
    check(
        """
import resource
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
x = np.ones((300_000, 128), np.float32)
edge_index = np.arange(600_000, dtype=np.int64).reshape(2, -1) % 300_000
before = peak()
data = halograph.Dataset.from_arrays(edge_index, x, np.zeros(300_000, np.int64), train_mask=[0])
assert peak() - before < x.nbytes // 2, (peak() - before, x.nbytes)
assert np.shares_memory(data.x, x)
"""
    )


def test_the_interpreter_ends_while_a_thread_trains():
    """A daemon thread that trains does not hang or crash the end of the interpreter."""
    code = """
started = threading.Event()
def work():
    halograph.train(data, callbacks=[lambda event: started.set()], **{**QUICK, "epochs": 1_000_000})
threading.Thread(target=work, daemon=True).start()
started.wait(60)
print("end", flush=True)
"""
    done = run_python(program(code), timeout=60)
    assert done.returncode == 0 and done.stdout == "end\n", (done.returncode, done.stderr)


def test_forked_processes_train():
    """After a training in this process: its thread pools must not be used by the child, which has only one thread."""
    check(
        """
halograph.train(data, **{**QUICK, "threads": 2})
child = os.fork()
if child == 0:
    signal.alarm(30)
    run = halograph.train(data, **{**QUICK, "threads": 2})
    os._exit(0 if run.predict().shape == (60, 3) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    )


def test_a_progress_bar_goes_to_standard_error(tmp_path):
    code = program('halograph.train(data, **{**QUICK, "progress": PROGRESS})', PROGRESS="True")
    done = run_python(code)
    assert done.returncode == 0 and done.stdout == "" and "3" in done.stderr, done
    for quiet in ("False", "None"):  # None: standard error is no terminal here
        done = run_python(program('halograph.train(data, **{**QUICK, "progress": PROGRESS})', PROGRESS=quiet))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_closed_standard_error_is_no_problem():
    code = program('os.close(2); halograph.train(data, **{**QUICK, "progress": True})')
    assert run_python(code).returncode == 0


def test_importing_is_cheap():
    """The package alone imports numpy and nothing else that is heavy."""
    code = "import sys, halograph; print(*[n for n in ('torch', 'pandas', 'scipy', 'matplotlib', 'networkx', 'sklearn') if n in sys.modules])"
    done = run_python(code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_signals_end_the_command(tmp_path):
    """Ctrl-C of the command behaves as that of the binary: it saves, says how to resume, and exits with 130."""
    command = Path(sys.executable).with_name("halograph")
    run = tmp_path / "run"
    words = [command, "train", "-o", run, "--epochs", "1000000", "--hidden", "4", "--threads", "1"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = run / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.stat().st_size > 0:
            break
        try:
            child.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, (child.returncode, stderr)
    assert "resume" in stdout + stderr and (run / "model.safetensors").exists()
