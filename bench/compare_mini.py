"""The mini-batch cases of bench/compare: graphs, flags, and what is measured besides epochs."""

import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import cases

GRAPHS = ["products-like", "reddit-like", "arxiv-like"]
SAMPLERS = ["neighbor", "labor"]
FANOUT, BATCH = "15,10,5", "1024"
# As in full-graph training, with one layer per hop.
FLAGS = {model: cases.FLAGS[model].replace("--layers 2", "--layers 3") for model in ["sage", "gcn", "gat"]}
OUR_FLAGS = ["--strategy", "minibatch", "--fanout", FANOUT, "--batch-size", BATCH]
PEER_FLAGS = ["--mode", "mini", "--fanout", FANOUT, "--batch", BATCH]
VARIANTS = {
    "halograph": [""],
    "dgl": [*(f"--loader {loader} --workers {count}" for loader in ["dl", "gb"] for count in [0, 1, 2]),
            "--loader dl --workers 0 --no-libxsmm"],
    "pyg": ["--workers 0", "--workers 2"],
}
SKIPPED = {("pyg", "labor"): "it has no LABOR sampler"}


def sampling(result):
    """Returns statistics of the batches from the JSON of a run of any tool; None for full-graph training."""
    batches = result.get("batches")
    if batches is None:
        return None
    if isinstance(batches, dict):  # halograph: totals of the run
        count = batches["batches"]
        return {"input_nodes": batches["input_nodes"] / count, "sampled_edges": batches["sampled_edges"] / count}
    edges = statistics.mean(result["sampled_edges"])
    found = {"input_nodes": statistics.mean(result["input_nodes"]) / batches, "sampled_edges": edges / batches,
             "worker_peak_bytes": result.get("worker_peak_rss_bytes")}
    if result["sampling_seconds"]:
        found["edges_per_second"] = edges / statistics.median(result["sampling_seconds"])
    return found


def extras(bench, train, run, limit):
    """Returns sampling rate and roofline fraction of `halograph bench`, and the peak memory of `train` without evaluation."""
    result = json.loads(cases.execute(bench, limit).splitlines()[-1])
    return {"edges_per_second": result["batches"]["sampling_alone_edges_per_second"], "roofline": result["share"],
            "others": result["others_share"], "training_peak_bytes": training_peak(train, run, limit)}


def training_peak(train, run, limit):
    """Starts training in the folder `run`, ends it after the first epoch, and returns its peak resident memory until then.

    It must not evaluate before the last epoch."""
    shutil.rmtree(run, ignore_errors=True)
    peak, deadline, metrics = 0, time.monotonic() + limit, run / "metrics.jsonl"
    with subprocess.Popen(train, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline:
                trained = metrics.exists() and metrics.stat().st_size > 0
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), peak)
                if trained:
                    return peak
                time.sleep(0.02)
        finally:
            process.kill()
    raise cases.Failure("no epoch to measure the memory of")
