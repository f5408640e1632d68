"""The `halograph` command of the wheel."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, halograph_command

import halograph


def test_help_and_version():
    done = halograph_command("--help")
    assert done.returncode == 0 and "Usage: halograph <COMMAND>" in done.stdout and done.stderr == ""
    done = halograph_command("-V")
    assert done.returncode == 0 and done.stdout.startswith(f"halograph {halograph.__version__} (")
    assert halograph_command().returncode == 2


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["fly"], 2, "fly"),
        (["train", "nowhere"], 2, "nowhere"),
        (["train", "--hidden", "x"], 2, "x"),
        (["data", "info", "nowhere"], 2, "nowhere"),
    ],
)
def test_exit_codes(words, code, part, tmp_path):
    done = halograph_command(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "") and part in done.stderr, done
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


def test_odd_bytes_in_arguments(tmp_path):
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"halograph", b"data", b"info", b"\xff\xfe"], capture_output=True, timeout=60
    )
    assert done.returncode == 2 and b"Traceback" not in done.stderr


def test_a_module_is_a_command_too():
    done = subprocess.run([sys.executable, "-W", "error", "-m", "halograph", "-V"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("halograph ")


def test_a_session_in_a_shell(tmp_path):
    """Each command of a session works, with processes of its own where it needs them (sweep)."""
    session = """
        halograph data make --nodes 200 --edges 800 --features 6 --classes 3 -o g -q
        halograph train g --hidden 4 --layers 2 --epochs 2 -o run -q
        halograph eval run --json
        halograph predict run -o - | head -1
        halograph report run
        halograph sweep g --hidden 4 --layers 2 --epochs 2 --grid lr=0.01,0.1 --jobs 2 -o s --json
    """
    environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", session], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "test" in json.loads(lines[0]) and lines[1].startswith("id,class,p_")
    assert len(json.loads(lines[-1])["runs"]) == 2
    assert (tmp_path / "run" / "report.html").exists()


def test_versions_agree():
    cargo = (ROOT / "python" / "Cargo.toml").read_text()
    assert f'version = "{halograph.__version__}"' in cargo
