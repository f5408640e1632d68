"""Trains on two pandas tables and returns a table of predictions: python examples/python/tables.py"""

import numpy as np
import pandas as pd

import halograph


def accounts(number: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draws payments and accounts: fraudulent accounts are young and pay each other."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(number) < 0.2
    nodes = pd.DataFrame({"age_days": rng.gamma(np.where(fraud, 2, 6), 60), "logins": rng.poisson(20, number)})
    nodes.index = pd.Index([f"acc-{i:03}" for i in range(number)])
    nodes["label"] = np.where(fraud, "fraud", "ok")
    source, target = rng.integers(number, size=(2, 20 * number))
    keep = (fraud[source] == fraud[target]) | (rng.random(source.size) < 0.3)
    edges = pd.DataFrame({"src": nodes.index[source[keep]], "dst": nodes.index[target[keep]]})
    return edges, nodes


def main() -> None:
    edges, nodes = accounts(400, seed=0)
    nodes["split"] = np.random.default_rng(1).choice(["train", "val", "test"], len(nodes), p=[0.6, 0.2, 0.2])
    march = halograph.Dataset.from_pandas(edges, nodes, name="march")
    run = halograph.train(
        march, layers=2, hidden=16, epochs=60, normalize="columns", class_weights="balanced", metric="macro-f1", progress=False
    )
    print(f"test macro-F1 {run.scores.test:.3f}")

    edges, nodes = accounts(200, seed=2)
    april = halograph.Dataset.from_pandas(edges, nodes.drop(columns="label"))  # columns are matched by name
    predicted = pd.DataFrame(run.predict(april, output="probabilities"), index=nodes.index, columns=march.class_names)
    print(predicted.sort_values("fraud", ascending=False).head(3).round(3))


if __name__ == "__main__":
    main()
