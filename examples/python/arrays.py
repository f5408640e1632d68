"""Trains on numpy arrays, in one process and on two ranks, and predicts new nodes: python examples/python/arrays.py"""

import numpy as np

import halograph


def communities(nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws two communities: most edges are inside, and the features say little about a single node."""
    rng = np.random.default_rng(seed)
    y = np.arange(nodes) % 2
    source, target = rng.integers(nodes, size=(2, 12 * nodes))
    keep = (y[source] == y[target]) | (rng.random(source.size) < 0.2)
    x = rng.normal(size=(nodes, 8)) + 0.2 * y[:, None]
    return np.stack([source[keep], target[keep]]), x.astype(np.float32), y


def main() -> None:
    edge_index, x, y = communities(600, seed=0)
    part = np.random.default_rng(1).permutation(600) % 3
    data = halograph.Dataset.from_arrays(
        edge_index, x, y, train_mask=part == 0, val_mask=part == 1, test_mask=part == 2, name="communities"
    )
    print(data)
    for ranks in (1, 2):
        run = halograph.train(data, model="sage", layers=2, hidden=16, epochs=60, ranks=ranks, progress=False)
        print(f"{ranks} ranks: test accuracy {run.scores.test:.3f}, best epoch {run.summary['best_epoch']}")

    edge_index, x, y = communities(300, seed=2)
    classes = run.predict(halograph.Dataset.from_arrays(edge_index, x), output="classes")
    print(f"new graph: {(classes == y).mean():.3f} of {len(y)} nodes are right")


if __name__ == "__main__":
    main()
