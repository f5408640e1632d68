"""The hosts of bench/hosts for scripts: network namespaces that exist as long as a `with` block."""

import contextlib
import os
import signal
import subprocess

from cases import ROOT, Failure, reason

HOSTS = str(ROOT / "bench/hosts")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
DOWN_LIMIT = 30  # seconds


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
