"""Every snippet of docs/python.md and every example runs."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from conftest import ROOT
from test_datasets import DglGraph
from test_launcher import WITH_MPI, mpirun

PAGE = (ROOT / "docs" / "python.md").read_text()
EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))
PYG_SECTION = "Cora in ten lines"


def sections():
    """Yields the title and the blocks of every section: (language, code)."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        yield section.split("\n", 1)[0], re.findall(r"^```(\w+)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)


def run_blocks(blocks, names):
    for language, code in blocks:
        if language == "python":
            exec(compile(code, f"docs/python.md: {code.splitlines()[0]}", "exec"), names)


@pytest.fixture
def planetoid(pyg, tmp_path):
    """A folder in which PyG's Planetoid finds Cora, so that it downloads nothing."""
    source = os.environ.get("HALOGRAPH_TEST_DATA")
    if source is None:
        pytest.skip("HALOGRAPH_TEST_DATA is not set, so there is no cora")
    shutil.copytree(Path(source, "cora"), tmp_path / "planetoid" / "Cora" / "raw")
    return tmp_path / "planetoid"


def test_the_ten_lines(planetoid, monkeypatch, pyg):
    monkeypatch.chdir(planetoid.parent)
    (blocks,) = [blocks for title, blocks in sections() if title == PYG_SECTION]
    assert len(blocks[0][1].split("\n")) <= 10 + 1  # the last is empty
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyG
        run_blocks(blocks, names)
    difference = (names["logits"] - pyg.torch.from_numpy(names["run"].predict())).abs().max()
    assert difference == 0 or names["run"].config["data"]["normalize"] == "none" and difference < 1e-4


def test_the_page(pyg, arrays, monkeypatch, tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"graph": DglGraph(arrays)}
    for title, blocks in sections():
        if title != PYG_SECTION:
            run_blocks(blocks, names)


def test_commands_of_the_page(tmp_path):
    lines = [code for _, blocks in sections() for language, code in blocks if language == "console"]
    commands = [line.removeprefix("$ ") for code in lines for line in code.splitlines() if line.startswith("$ ")]
    assert len(commands) >= 3
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands:
        if command.startswith("pip install") or command.startswith("mpirun") and not WITH_MPI:
            continue  # what `scripts/test-python` did; what this build refuses
        command = command.replace("mpirun -n 4", " ".join(mpirun(4)))
        done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example, request, tmp_path, monkeypatch, capsys):
    assert len(example.read_text().splitlines()) <= 40
    if "[FOLDER]" in example.read_text():  # in this process, which has imported PyG, which takes seconds
        monkeypatch.setattr(sys, "argv", [str(example), str(request.getfixturevalue("planetoid"))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyG
            runpy.run_path(str(example), run_name="__main__")
        assert "largest difference" in capsys.readouterr().out
        return
    done = subprocess.run([sys.executable, "-W", "error", example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout and list(tmp_path.iterdir()) == []
