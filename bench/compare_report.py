"""The results of bench/compare, as Markdown and as JSON."""

import json
import os
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

TOOLS = {"halograph": "halograph", "dgl": "DGL", "pyg": "PyG"}
NOISE = 0.05  # fraction of the CPU used by other processes above which a warning is printed
FAR = 1.5  # ratio of losses above which a warning is printed
MINI_LEGEND = """\
MB: peak resident memory of training. No tool evaluates meanwhile; halograph's in brackets includes an evaluation on the full
graph at the end. `+ 2 x`: sampling workers, each at most as large as shown; they share pages with the main process.
Loss: mean over the batches of an epoch. Input nodes (distinct ones) and edges (of all hops): mean per batch.
Sampling alone: edges per second, without gathering features. Of roofline: halograph's epoch against the roofline of its own
blocks (`halograph bench`)."""
SIMD = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "asimd": "NEON"}


def machine():
    """Returns CPU, cores, memory, kernel and vector instructions in one line."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in info)}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    simd = next((name for flag, name in SIMD.items() if flag in flags), "no vector instructions known")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = os.uname()
    return (f"{fields.get('model name', kernel.machine)}, {os.cpu_count()} cores, {memory:.0f} GiB, "
            f"{kernel.sysname} {kernel.release}, {simd}")


def duration(seconds):
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def span(medians):
    """Formats the range, in the unit of the largest value."""
    low, high = min(medians), max(medians)
    low_text, (high_text, unit) = duration(low), duration(high).split()
    if not low_text.endswith(" " + unit):
        return f"{low_text} to {high_text} {unit}"
    return f"{low_text.split()[0]} to {high_text}"


@dataclass
class Tool:
    """One tool on one case: the fastest variant that succeeded, or the error."""

    seconds: float | None = None
    round_medians: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    others: float | None = None
    variant: str = ""
    error: str | None = None
    skipped: str | None = None
    sampling: dict | None = None  # mini-batches: see compare_mini.sampling
    variants: list[dict] = field(default_factory=list)  # all runs with all epochs


def best(variants):
    """Returns the report of a tool: its fastest variant without a failed run."""
    everything = [asdict(series) for series in variants]
    working = [series for series in variants if series.runs and not series.error]
    if not working:
        return Tool(error=next(series.error for series in variants if series.error), variants=everything)
    series = min(working, key=lambda series: series.rank())
    runs = series.runs
    return Tool(
        seconds=series.median(),
        round_medians=[statistics.median(run.seconds) for run in runs],
        peak_bytes=max(run.peak_bytes for run in runs),
        loss_first=runs[0].losses[0],
        loss_last=runs[0].losses[-1],
        others=max(run.others for run in runs),
        variant=series.variant,
        sampling=runs[0].sampling,
        variants=everything,
    )


@dataclass
class Results:
    command: str
    machine: str
    settings: dict
    halograph: str = "halograph"
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    cases: list[dict] = field(default_factory=list)

    def add(self, graph, model, series, skipped, extras=None):
        tools = {tool: best(variants) for tool, variants in series.items()}
        tools |= {tool: Tool(skipped=why) for tool, why in skipped.items()}
        for tool, variants in series.items():
            for run in (run for one in variants for run in one.runs if run.versions):
                self.versions[tool] = run.versions
        if extras and tools["halograph"].peak_bytes:
            extras["evaluation_peak_bytes"] = tools["halograph"].peak_bytes
            tools["halograph"].peak_bytes = extras.get("training_peak_bytes")
        self.cases.append({"graph": graph, "model": model, "tools": tools, "extras": extras})

    def failed(self):
        errors = [tool.error for case in self.cases for tool in case["tools"].values()]
        return any(errors) or any((case["extras"] or {}).get("error") for case in self.cases)

    def save(self, path):
        """Writes the file atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        cases = [case | {"tools": {name: asdict(tool) for name, tool in case["tools"].items()}} for case in self.cases]
        partial.write_text(json.dumps(vars(self) | {"cases": cases}, indent=1, default=str) + "\n")
        partial.replace(path)

    def markdown(self):
        notes = Notes()
        peers = [tool for tool in TOOLS if tool != "halograph" and any(tool in case["tools"] for case in self.cases)]
        times = table([*columns("", peers), "others' CPU"], [time_row(case, peers, notes) for case in self.cases])
        losses = ["loss, first → last epoch: halograph", *map(TOOLS.get, peers)]
        rest = table([*columns("MB: ", peers), *losses], [memory_row(case, peers) for case in self.cases])
        for case in self.cases:
            notes.warn(case)
        settings, is_mini = self.settings, self.settings["mode"] == "mini"
        head = (f"`{self.command}`: an epoch of {'mini-batch' if is_mini else 'full-graph'} training, median of "
                f"{settings['rounds']} x {settings['epochs']} epochs (smallest to largest median of a round), "
                f"{settings['threads']} threads.")
        legend = "Others' CPU: the largest share of the machine that other programs took during a run. "
        if is_mini:
            rest += "\n\n" + sampling_table(self.cases, peers, notes)
            legend += MINI_LEGEND.replace("\n", " ")
        else:
            legend += "MB: peak resident memory; halograph's includes an evaluation at the end, the peers do not evaluate."
        foot = f"Machine: {self.machine}.\n\nVersions: {self.all_versions()}."
        return "\n\n".join(filter(None, [head, times, rest, legend, notes.text(), foot]))

    def all_versions(self):
        named = ([f"{name} {number}" for name, number in found.items()] for found in self.versions.values())
        peers = map(" with ".join, named)
        return "; ".join([self.halograph, *peers])


class Notes:
    """Numbered footnotes without repetitions, and warnings."""

    def __init__(self):
        self.footnotes, self.warnings = [], []

    def mark(self, text):
        if text not in self.footnotes:
            self.footnotes.append(text)
        return f" [{self.footnotes.index(text) + 1}]"

    def warn(self, case):
        place, ours = f"{case['graph']} {case['model']}", case["tools"]["halograph"]
        for name, tool in case["tools"].items():
            if tool.seconds is None:
                continue
            if tool.others > NOISE:
                self.warnings.append(f"{place}: other processes used {tool.others:.0%} of the CPU during a run of {TOOLS[name]}")
            if ours.seconds is not None and not ours.loss_last / FAR <= tool.loss_last <= ours.loss_last * FAR:
                self.warnings.append(f"{place}: the last loss of {TOOLS[name]} differs from that of halograph by more than a factor of {FAR}")

    def text(self):
        notes = [f"[{k}] {text}." for k, text in enumerate(self.footnotes, start=1)]
        return "\n".join(f"- {line}" for line in notes + [f"Warning: {text}." for text in self.warnings])


def columns(prefix, peers):
    return ["graph", "model", f"{prefix}halograph", *map(TOOLS.get, peers), *(f"{TOOLS[peer]} / ours" for peer in peers)]


def table(header, rows):
    rule = ["---"] * 2 + ["---:"] * (len(header) - 2)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def time_row(case, peers, notes):
    tools = case["tools"]
    present = [tool for tool in tools.values() if tool.seconds is not None]
    others = f"{max(tool.others for tool in present):.0%}" if present else "-"
    cells = [time_cell(name, tools.get(name), notes) for name in ["halograph", *peers]]
    return [case["graph"], case["model"], *cells, *ratios(tools, peers, "seconds"), others]


def time_cell(name, tool, notes):
    if tool is None:
        return "-"
    if tool.skipped:
        return "-" + notes.mark(f"{TOOLS[name]} is not run: {tool.skipped}")
    if tool.error:
        return "failed" + notes.mark(f"{TOOLS[name]}: {tool.error.replace('|', '/')}")
    spread = f" ({span(tool.round_medians)})" if len(tool.round_medians) > 1 else ""
    return f"{duration(tool.seconds)}{spread}{variant_mark(name, tool, notes)}"


def variant_mark(name, tool, notes):
    """Returns a footnote if the shown variant has extra flags."""
    if not tool.variant:
        return ""
    if all(one["variant"] for one in tool.variants):
        faults = (f"; `{one['variant']}` fails ({one['error'].replace('|', '/')})" for one in tool.variants if one["error"])
        return notes.mark(f"{TOOLS[name]} with `{tool.variant}`, the fastest of {len(tool.variants)} variants{''.join(faults)}")
    fault = next((one["error"] for one in tool.variants if not one["variant"]), None)
    why = f"without it fails ({fault.replace('|', '/')})" if fault else "without it is slower"
    return notes.mark(f"{TOOLS[name]} with `{tool.variant}`; {why}")


def memory_row(case, peers):
    tools = case["tools"]
    shown = [tools.get(name, Tool()) for name in ["halograph", *peers]]
    megabytes = ["-" if tool.peak_bytes is None else f"{tool.peak_bytes / 1e6:.0f}" for tool in shown]
    if case["extras"]:
        megabytes[0] += f" ({case['extras'].get('evaluation_peak_bytes', 0) / 1e6:.0f})"
        megabytes[1:] = [text + workers(tool) for text, tool in zip(megabytes[1:], shown[1:])]
    losses = ["-" if tool.seconds is None else f"{tool.loss_first:.3f} → {tool.loss_last:.3f}" for tool in shown]
    return [case["graph"], case["model"], *megabytes, *ratios(tools, peers, "peak_bytes"), *losses]


def workers(tool):
    """Returns number and megabytes of the sampling workers, if there are any."""
    size = (tool.sampling or {}).get("worker_peak_bytes")
    return f" + {tool.variant.split('--workers ')[1].split()[0]} x {size / 1e6:.0f}" if size else ""


def sampling_table(cases, peers, notes):
    tools = ["halograph", *peers]
    header = [f"{what}: {TOOLS[tool]}" if tool == "halograph" else TOOLS[tool]
              for what in ["input nodes", "edges", "sampling alone, M edges/s"] for tool in tools]
    return table(["graph", "model", *header, "of roofline"], [sampling_row(case, tools, notes) for case in cases])


def sampling_row(case, tools, notes):
    extras = case["extras"]
    found = {tool: case["tools"].get(tool, Tool()).sampling or {} for tool in tools}
    found["halograph"] = found["halograph"] | {key: extras[key] for key in ["edges_per_second"] if key in extras}
    cells = [f"{one[key] / unit:,.{digits}f}" if key in one else "-" for key, unit, digits
             in [("input_nodes", 1, 0), ("sampled_edges", 1, 0), ("edges_per_second", 1e6, 1)] for one in found.values()]
    share = f"{extras['roofline']:.0%}" if "roofline" in extras else "-" + notes.mark(f"halograph: {extras['error']}")
    return [case["graph"], case["model"], *cells, share]


def ratios(tools, peers, key):
    ours = getattr(tools["halograph"], key)
    theirs = [getattr(tools.get(peer, Tool()), key) for peer in peers]
    return ["-" if not ours or value is None else f"{value / ours:.2f}" for value in theirs]
