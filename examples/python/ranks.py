"""Trains on several ranks: four threads of one process, or the processes that a launcher starts.

    python examples/python/ranks.py
    mpirun -n 4 python examples/python/ranks.py      # if the package was built with MPI
"""

import halograph


def main() -> None:
    data = halograph.Dataset.make("demo")
    for strategy in ("partition", "minibatch", "pipelined"):
        # Under a launcher, every process calls `train` with the same settings, and `ranks` is the launcher's decision.
        run = halograph.train(data, strategy=strategy, ranks=4, hidden=64, epochs=30, progress=False)
        if run.is_leader:  # rank 0 has the results
            summary = run.summary
            print(f"{strategy}: {summary['ranks']} ranks ({summary['transport']}), test accuracy {run.scores.test:.4f}")


if __name__ == "__main__":
    main()
