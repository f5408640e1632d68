"""Runs that a file of JSON lines keeps, so that they are not repeated; the main function of scripts that have such a file."""

import json
import os
import shlex
import subprocess
import sys
import time

from cases import Failure, Load, execute, prepare_graphs, say
from namespaces import adopt_orphans, raise_on_signals, reap


def read(path):
    """Returns the lines of a file of finished runs; a partial last line is left out."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def append(path, line):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = path.read_bytes() if path.exists() else b""
    broken = data and not data.endswith(b"\n")  # written by a run that was killed
    if broken:
        os.truncate(path, data.rfind(b"\n") + 1)
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def found(lines, wanted):
    """Returns the lines that have these values and did not fail."""
    return [line for line in lines if wanted.items() <= line.items() and "error" not in line]


def failure(lines, wanted):
    """Returns the last error of the runs that have these values, fit for a table; None if none failed."""
    errors = [line["error"] for line in lines if wanted.items() <= line.items() and "error" in line]
    return f"failed: {errors[-1]}".replace("|", "/") if errors else None


def dates(lines, runs):
    """Returns the first and the last date of finished runs as text."""
    days = sorted({line["date"] for run in runs for line in found(lines, run)})
    return " to ".join(dict.fromkeys(days[:1] + days[-1:]))


def measured(run, version, command, train):
    """Calls `train`, which executes `command` and returns its report; returns the line for the file of finished runs."""
    load = Load()
    try:
        report = train(command)
        if (done := len(report["epoch_seconds"])) != run["epochs"]:
            raise Failure(f"{done} epochs instead of {run['epochs']}")
    except (Failure, OSError, ValueError, KeyError, IndexError) as fault:
        say(f"  failed: {fault}")
        return {**run, "error": str(fault)}
    reap()
    return {**run, "others_cpu": round(load.others(), 3), "run_seconds": round(load.seconds(), 1),
            "date": time.strftime("%Y-%m-%d"), "version": version, "command": shlex.join(map(str, command)), "report": report}


def run_missing(path, lines, runs, measure):
    """Measures the runs that `lines` does not have, and appends each to the file; returns whether all succeeded."""
    missing = [run for run in runs if not found(lines, run)]
    say(f"{len(runs) - len(missing)} of {len(runs)} runs are in {path.name}")
    good = True
    for run in missing:
        line = measure(run)
        good &= "error" not in line
        lines.append(line)
        append(path, line)
    return good


def run_script(script, args, runs, command, run_all, markdown):
    """Runs what is missing in `--out` and prints all results, or lists the commands with --list; returns the exit code.

    `command(args, run, folder)` is the command of a run, `run_all(args, lines, runs)` returns whether all succeeded, and
    `markdown(args, lines, runs)` the results."""
    lines = read(args.out)
    if args.list:
        args.binary = args.binary or "halograph"
        for run in runs:
            if not found(lines, run):
                print(shlex.join(command(args, run, "FOLDER")))
        return 0
    raise_on_signals()
    adopt_orphans()
    code = 1
    try:
        prepare_graphs(args, args.graphs, features=["mpi"])
        args.version = execute([args.binary, "--version"], 60).strip()
        code = 0 if run_all(args, lines, runs) else 1
    except KeyboardInterrupt:
        say("interrupted")
        code = 130
    except (Failure, OSError, subprocess.SubprocessError) as fault:
        say(f"{script}: {fault}")
    if any(found(lines, run) for run in runs):
        print(markdown(args, lines, runs))
    return code


def need_root(script):
    if os.getuid() != 0:
        sys.exit(f"{script}: network namespaces need root")
