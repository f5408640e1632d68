"""The hosts of bench/hosts for scripts: network namespaces that exist as long as a `with` block."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time

from cases import ROOT, Failure, execute, reason

HOSTS = str(ROOT / "bench/hosts")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
DOWN_LIMIT, EXIT_LIMIT = 30, 60  # seconds
PR_SET_CHILD_SUBREAPER = 36


def raise_on_signals():
    """Makes signals that end this script raise KeyboardInterrupt, so that the hosts are removed."""
    def interrupt(*_):
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)


@contextlib.contextmanager
def uninterrupted():
    """Delays signals, also those to commands that are started meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextlib.contextmanager
def hosts_up(count, rate):
    """Creates the hosts, and removes them with all their processes. The variables HOSTS and NET are those of bench/hosts."""
    name = os.environ.get("HOSTS", "hg")
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    if any(host.startswith(name) and host[len(name):].isdigit() for host in found):
        raise Failure(f"hosts named {name} exist already: another run, or left by a killed one (HOSTS={name} bench/hosts down)")
    try:
        with uninterrupted():
            done = subprocess.run([HOSTS, "up", str(count), rate], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failure(f"bench/hosts up: {reason(done.stderr)}")
        yield
    finally:
        with uninterrupted():
            subprocess.run([HOSTS, "down"], timeout=DOWN_LIMIT)


def adopt_orphans():
    """Makes this process the parent of descendants whose parents end: the daemons of mpirun with their ranks. Their CPU time
    counts as our own once they have been waited for."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap():
    """Waits for adopted processes, not for ever."""
    end = time.monotonic() + EXIT_LIMIT
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            return


def on_all_hosts(count, *command):
    """Returns the command that runs `command` under mpirun, one rank per host."""
    return [HOSTS, "mpi", "--", "-n", str(count), *command]


def train_on_hosts(count, rate, command, limit):
    """Runs a command on new hosts and returns the last line of its output, the summary of a run."""
    with hosts_up(count, rate):
        output = execute(command, limit)
    report = json.loads((output.splitlines() or [""])[-1])
    if report["ranks"] != count:
        raise Failure(f"{report['ranks']} ranks instead of {count}: was halograph built with the feature mpi?")
    return report
