"""Compute seconds per stage group and chunk, from the trace of a run with --strategy layers, and their replay on cores that do
not wait for links."""

from collections import defaultdict, deque
from itertools import pairwise

COMPUTE, WAIT = 0, 3  # threads of a rank in a trace
DIRECTIONS = ["forward", "backward"]


def spans_of(events):
    """Returns the spans in which ranks computed: start and end in seconds, rank, and (epoch, step, chunk, direction). Time
    between traced spans of a step belongs to the later one, without waits: copies of rows, mostly."""
    computed, waits = defaultdict(list), defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["tid"] in [COMPUTE, WAIT] and event["cat"] != "bubble":  # contains other waits
            start, place = event["ts"] / 1e6, event["args"]
            key = (place["epoch"], place["step"], place["chunk"], event["cat"])
            spans = computed if event["tid"] == COMPUTE else waits
            spans[event["pid"]].append((start, start + event["dur"] / 1e6, key))
    for rank, spans in computed.items():
        waited, before = deque(sorted(waits[rank])), (0.0, None)
        for start, end, key in sorted(spans):
            is_step = key[3] in DIRECTIONS
            if is_step and before[1] == key[:2]:
                start = before[0]
            yield from ((*span, rank, key) for span in without(start, end, waited))
            before = (max(end, before[0]), key[:2] if is_step else None)


def without(start, end, waits):
    """Yields the parts of a span outside of waits, and removes waits that end in it. All are in order of time."""
    while waits and waits[0][0] < end:
        first, last, _ = waits[0]
        if first > start:
            yield start, first
        start = max(start, last)
        if last > end:
            return
        waits.popleft()
    if start < end:
        yield start, end


def core_seconds(spans, cores):
    """Returns the seconds of a core that each rank spent per key. When more ranks compute than there are cores, each has an
    equal share of them."""
    edges = sorted((time, turn, rank, key) for start, end, rank, key in spans for time, turn in [(start, 1), (end, -1)])
    seconds, active = defaultdict(float), defaultdict(int)
    for (now, turn, rank, key), (later, *_) in pairwise(edges):
        active[rank, key] += turn
        if not active[rank, key]:
            del active[rank, key]
        for place in active:
            seconds[place] += (later - now) * min(1.0, cores / len(active))
    return seconds


def steps_of(spans, cores):
    """Returns the steps of a run by (epoch, step): for each direction, seconds of a core by stage group and position of the
    chunk in the forward."""
    first = {}
    for start, _, rank, key in spans:
        if key[3] == "forward" and rank == 0:
            first[key[:3]] = min(start, first.get(key[:3], start))
    chunks = defaultdict(list)
    for key in sorted(first, key=first.get):
        chunks[key[:2]].append(key[2])
    seconds, ranks = core_seconds(spans, cores), 1 + max((rank for _, _, rank, _ in spans), default=0)
    return {step: {direction: [[seconds.get((rank, (*step, chunk, direction)), 0.0) for chunk in order] for rank in range(ranks)]
                   for direction in DIRECTIONS}
            for step, order in chunks.items()}


def replay(step):
    """Returns the seconds of a step in which every stage group has a core of its own and links cost nothing: forward of all
    chunks in order, then backward of all in reverse order."""
    forward, backward = (step[direction] for direction in DIRECTIONS)
    groups, chunks = len(forward), len(forward[0])
    ready = [0.0] * chunks  # when the group before has computed a chunk
    free = []  # when each group has computed all chunks
    for group in range(groups):
        now = 0.0
        for chunk in range(chunks):
            now = ready[chunk] = max(now, ready[chunk]) + forward[group][chunk]
        free.append(now)
    for group in reversed(range(groups)):
        now = free[group]
        for chunk in reversed(range(chunks)):
            before = ready[chunk] if group + 1 < groups else 0.0
            now = ready[chunk] = max(now, before) + backward[group][chunk]
        free[group] = now
    return max(free)


def idle(step):
    """Returns the fraction of time that groups are idle in the replay of a step."""
    work = sum(sum(map(sum, step[direction])) for direction in DIRECTIONS)
    return 1 - work / (len(step["forward"]) * replay(step)) if work else 0.0


def with_equal_chunks(step):
    """Returns the step as if all chunks took equally long in a group."""
    return {direction: [[sum(row) / len(row)] * len(row) for row in rows] for direction, rows in step.items()}
