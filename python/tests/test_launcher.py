"""Ranks that `mpirun` started."""

import json
import os
import textwrap

import pytest
from conftest import QUICK, assert_same_weights, halograph_command, read_safetensors, run_python

from halograph import train

WITH_MPI = "no MPI" not in halograph_command("-V").stdout


def mpirun(ranks):
    as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return ["mpirun", *as_root, "--oversubscribe", "-n", str(ranks)]


with_mpi = pytest.mark.skipif(not WITH_MPI, reason="the package was built without MPI")
without_mpi = pytest.mark.skipif(WITH_MPI, reason="the package was built with MPI")


@with_mpi
def test_ranks_of_a_launcher(data, tmp_path):
    data.save(tmp_path / "g")
    code = f"""
        import halograph
        events = []
        run = halograph.train("g", out="run", callbacks=[events.append], **{QUICK})
        if run.is_leader:
            assert run.scores.test is not None and len(events) == 6
            assert run.predict().shape == (60, 3)
        else:
            assert events == []
            try:
                run.scores
            except halograph.HalographError as error:
                assert "rank 0" in str(error)
            else:
                raise SystemExit("scores on another rank")
        # A launched process trains several runs, one after the other.
        classifier = halograph.NodeClassifier(**{QUICK}).fit("g")
        assert classifier.run_.is_leader == run.is_leader == hasattr(classifier, "classes_")
    """
    done = run_python(textwrap.dedent(code), launcher=mpirun(2), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = train(data, ranks=2, **QUICK)
    assert_same_weights(run.state_dict(), read_safetensors(tmp_path / "run" / "model.safetensors"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["summary"]["transport"] == "mpi"


@with_mpi
def test_errors_of_ranks(data, tmp_path):
    """Settings that differ, a callback that raises on rank 0, and a rank that stops answering."""
    data.save(tmp_path / "g")
    code = f"""
        import os, signal, sys, threading
        import halograph
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        settings = {QUICK}
        try:
            halograph.train("g", **{{**settings, "hidden": 8 + rank}})
        except halograph.InputError as error:
            assert "hidden" in str(error), error
        else:
            sys.exit("settings that differ were accepted")
        def stop_answering():
            os.kill(os.getpid(), signal.SIGSTOP)
        if rank == 1:
            threading.Timer(1, stop_answering).start()
        try:
            halograph.train("g", **{{**settings, "epochs": 10_000_000, "deadline": 2}})
        except halograph.PeerLost as error:
            print("lost:", error, flush=True)
            os._exit(7)
    """
    done = run_python(textwrap.dedent(code), launcher=mpirun(2), cwd=tmp_path, timeout=60)
    assert done.returncode != 0 and "lost:" in done.stdout and "rank 1" in done.stdout, done


@without_mpi
def test_a_build_without_mpi_refuses_to_be_a_rank(tmp_path):
    environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    code = f"import halograph; halograph.train(halograph.Dataset.make('demo'), **{QUICK})"
    done = run_python(code, env=environment, cwd=tmp_path)
    assert done.returncode == 1 and "InputError" in done.stderr and "mpi" in done.stderr, done.stderr
