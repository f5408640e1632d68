"""Watches a run and stops it when a target is reached: python examples/python/callbacks.py"""

import halograph
from halograph import Epoch, Evaluation, Event


class StopAt:
    """Stops when the validation score reaches a target."""

    def __init__(self, target: float) -> None:
        self.target = target

    def __call__(self, event: Event) -> bool:
        reached = isinstance(event, Evaluation) and event.val is not None and event.val >= self.target
        return not reached  # False stops


def show(event: Event) -> None:
    if isinstance(event, Epoch):
        print(f"epoch {event.epoch}: loss {event.loss:.4f}", end="")
    else:
        print(f", validation {event.val:.4f}")


def main() -> None:
    data = halograph.Dataset.make("demo")
    run = halograph.train(data, model="sage", hidden=64, callbacks=[show, StopAt(0.95)], progress=False)
    print(f"stopped: {run.interrupted}, after {len(run.history['epoch'])} epochs; test {run.scores.test:.4f}")


if __name__ == "__main__":
    main()
