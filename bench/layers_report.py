"""The cost model and the tables of bench/layers."""

import itertools
import shlex
import statistics
import sys
from pathlib import Path

import svg
from compare_report import NOISE, duration, machine, span, table
from runs import dates, failure, found

WARM_UPS = 2  # epochs: the first pipelined one is synchronous, the first of layers initialises history
DEFAULT_CHUNKS = "default"
NUMBER = 4  # bytes
PURPOSES = ["features", "gradients", "activations", "activation_gradients", "weights"]
COLORS = ["#1f6feb", "#d1242f", "#1a7f37", "#f0883e", "#8250df", "#bf3989", "#57606a"]
HEAD = ["way", "chunks", "epoch (range)", "computation", "CPU, all ranks", "waiting", "bubble", "sent, MB",
        *(purpose.replace("_", " ") for purpose in PURPOSES), "measured / model", "memory per rank (largest), MB",
        "partition ÷ way: time", "bytes", "model", "memory", "others' CPU"]
LEGEND = f"""\
All values are per epoch. Epoch: median without the first {WARM_UPS} epochs, and range. Computation and waiting: means over
ranks and all epochs of the time in which a rank does not only wait, and in which it does; computation includes waits for a
core, CPU (of all ranks together, with the threads that carry messages) does not. Bubble: (S - 1) / (K + S - 1) of S groups of
stages and K chunks of a way. Sent: payload of all ranks in the last epoch, by purpose. Measured / model: bytes relative to
the cost model, 4 H L (halo rows) each way, 4 H N (2 of gcnii, for the initial rows, except right after the initial stage) each
way for each boundary of stages, and 2 (W - 1) parameters of 4 bytes of W ways. The model sends every halo row in every layer; layers near the end need fewer.
Memory: peak resident memory of a rank, mean and largest, with the exact evaluation after the last epoch. Partition ÷ way: above
1, the way is faster or smaller. Others' CPU: fraction of the machine that others used during the run, among them the kernel's
work for links; above {NOISE:.0%} more than in other rows, repeat the run on a quiet machine."""


def links(rate):
    return "unshaped links" if rate == "none" else f"links of {rate}"


def label(run):
    """Names the way of a run, its chunks and flags."""
    count = "" if run["chunks"] in ["", DEFAULT_CHUNKS] else f", {run['chunks']} chunks"
    return run["way"] + count + (f", {run['flags']}" if run["flags"] else "")


def name(run):
    return (f"{run['graph']} {run['model']}, {run['layers']} layers of {run['hidden']}, {links(run['rate'])}, "
            f"round {run['round']}: {label(run)}")


def modelled_bytes(case, report):
    """Returns the bytes of an epoch by the cost model: halo rows of every layer, rows between stages, weights."""
    parts, facts = report["parts"], report.get("pipeline") or {"groups": [{"stages": [0, 0]}], "parts": report["ranks"], "steps_per_epoch": 1}
    row = NUMBER * case["hidden"]
    halo = 2 * row * case["layers"] * sum(part["halo"] for part in parts)
    # Rows of the initial stage of gcnii go along; right after this stage, they are all.
    widths = [2 if case["model"] == "gcnii" and first > 1 else 1 for first in (group["stages"][0] for group in facts["groups"][1:])]
    between = 2 * row * sum(part["nodes"] for part in parts) * sum(widths)
    weights = 2 * (facts["parts"] - 1) * NUMBER * report["parameters"] * facts["steps_per_epoch"]
    return halo + between + weights


def numbers_of(case, line):
    """Returns the numbers of a run per epoch."""
    report, epochs = line["report"], line["epochs"]
    facts, peaks = report.get("pipeline"), report["rank_peak_bytes"]
    return {"steady": report["epoch_seconds"][WARM_UPS:], "others": line["others_cpu"],
            "compute": report["compute_seconds"] / epochs, "waits": report["wait_seconds"] / epochs,
            "cpu": report["cpu_seconds"] / epochs, "bytes": report["bytes_per_epoch"],
            **{purpose: report["bytes_by_tag"].get(purpose, 0) for purpose in PURPOSES},
            "model": modelled_bytes(case, report), "memory": statistics.mean(peaks), "largest": max(peaks),
            "bubble": facts["bubble_formula"] if facts else 0.0, "chunks": facts["chunks"] if facts else 0}


def combined(lines, case):
    """Returns the numbers of the rounds of a case together: all timed epochs, means of the rest; None without a run."""
    rounds = [numbers_of(case, line) for line in found(lines, case)]
    if not rounds:
        return None
    means = {key: statistics.mean(one[key] for one in rounds) for key in rounds[0] if key != "steady"}
    steady = [seconds for one in rounds for seconds in one["steady"]]
    return {**means, "steady": steady, "epoch": statistics.median(steady), "others": max(one["others"] for one in rounds)}


def partition_of(case):
    return {**case, "way": "partition", "chunks": "", "flags": ""}


def row(lines, case):
    """Returns the cells of a case, all rounds together; None if it was not run."""
    ours = combined(lines, case)
    if ours is None:
        error = failure(lines, case)
        return [label(case), str(case["chunks"]), error, *[""] * (len(HEAD) - 3)] if error else None
    megabytes = lambda count: f"{count / 1e6:.1f}"
    cells = [label(case), f"{ours['chunks']:.0f}" if ours["chunks"] else "", f"{duration(ours['epoch'])} ({span(ours['steady'])})",
             duration(ours["compute"]), duration(ours["cpu"]), duration(ours["waits"]),
             f"{ours['bubble']:.0%}" if ours["chunks"] else "", *(megabytes(ours[key]) for key in ["bytes", *PURPOSES]),
             f"{ours['bytes'] / ours['model']:.3f}", f"{ours['memory'] / 1e6:.0f} ({ours['largest'] / 1e6:.0f})"]
    base = combined(lines, partition_of(case))
    ratios = [f"{base[key] / ours[key]:.2f}" for key in ["epoch", "bytes", "model", "memory"]] if base else [""] * 4
    return [*cells, *ratios, f"{ours['others']:.0%}"]


def without(run, *keys):
    return {key: value for key, value in run.items() if key not in keys}


def unique(cases):
    return [dict(items) for items in dict.fromkeys(tuple(case.items()) for case in cases)]


def crossing(depths, times, base):
    """Returns the depth from which a way is faster than the base, linear between measured depths, as text."""
    gains = [base[depth] - times[depth] for depth in depths]
    if gains[-1] <= 0:
        return f"above {depths[-1]}"
    last = max((k for k, gain in enumerate(gains) if gain <= 0), default=None)
    if last is None:
        return f"below {depths[0]}"
    share = -gains[last] / (gains[last + 1] - gains[last])
    return f"{depths[last] + share * (depths[last + 1] - depths[last]):.0f}"


def by_depth(lines, runs):
    """Returns, for every graph, model and rate, the median epoch of every way by depth, as far as it was run."""
    curves = {}
    for case in unique(without(run, "round") for run in runs):
        if ours := combined(lines, case):
            place = (Path(case["graph"]).name, case["model"], case["rate"])
            curves.setdefault(place, {}).setdefault(label(case), {})[case["layers"]] = ours["epoch"]
    return curves


def depth_table(curves, depths):
    """Returns epoch times by depth, and the depth from which a way is faster than partition."""
    rows = []
    for (graph, model, rate), ways in curves.items():
        for way, times in ways.items():
            cells = [duration(times[depth]) if depth in times else "" for depth in depths]
            base = ways.get("partition", {})
            common = [depth for depth in depths if depth in times and depth in base]
            even = crossing(common, times, base) if way != "partition" and len(common) > 1 else ""
            rows.append([graph, f"{model}, {links(rate)}", way, *cells, even])
    return table(["graph", "model", "way", *(f"{depth} layers" for depth in depths), "break-even depth"], rows)


def plot(curves, depths, path):
    """Writes one panel per graph and rate (column) and model (row): epoch time by depth."""
    columns = list(dict.fromkeys((graph, rate) for graph, _, rate in curves))
    models = list(dict.fromkeys(model for _, model, _ in curves))
    ways = list(dict.fromkeys(itertools.chain(*curves.values())))
    colors, (wide, high), head = dict(zip(ways, itertools.cycle(COLORS))), (360, 260), 50
    shapes = ['<text x="40" y="20">seconds per epoch; x axis: layers of the model</text>', *svg.legend(colors.items(), 32)]
    for (graph, model, rate), found_ways in curves.items():
        top = 1.1 * max(max(times.values()) for times in found_ways.values())
        panel = svg.Panel(f"{graph}, {model}, {links(rate)}", depths, top, (wide, high))
        for way, times in found_ways.items():
            points = [(depth, times[depth]) for depth in depths if depth in times]
            panel.line(points, colors[way])
            panel.dots(points, colors[way])
        shapes.append(panel.placed(wide * columns.index((graph, rate)), head + high * models.index(model)))
    svg.save(path, (max(wide * len(columns), 40 + 140 * len(ways)), head + high * len(models)), shapes)


def markdown(args, lines, runs):
    """Returns all tables; also writes the plot, if there are several depths."""
    start = shlex.join(["bench/layers", *sys.argv[1:]])
    text = [f"`{start}`, {dates(lines, runs)}: {args.hosts} hosts, 1 thread per rank, hidden size {args.hidden}, {args.epochs} "
            f"epochs per run, {args.rounds} run{'s' * (args.rounds > 1)} per way.", LEGEND.replace("\n", " ")]
    cases = unique(without(run, "round") for run in runs)
    for place in unique(without(case, "way", "chunks", "flags") for case in cases):
        if rows := [cells for case in cases if place.items() <= case.items() and (cells := row(lines, case))]:
            title = f"### {Path(place['graph']).name}, {place['model']}, {place['layers']} layers, {links(place['rate'])}"
            text += [title, table(HEAD, rows)]
    if len(args.layers) > 1:
        depths, curves = sorted(set(args.layers)), by_depth(lines, runs)
        plot(curves, depths, args.plot)
        text += ["### Epoch time by depth", depth_table(curves, depths)]
    return "\n\n".join([*text, f"Machine: {machine()}."])
