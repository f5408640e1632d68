"""Trains on Cora from PyG and returns a PyG model with the same logits: python examples/python/cora.py [FOLDER]

Needs torch and torch_geometric. PyG downloads Cora into FOLDER (default: planetoid) unless it is there already.
"""

import sys

import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures

import halograph


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "planetoid"
    cora = Planetoid(folder, "Cora", transform=NormalizeFeatures())[0]

    data = halograph.Dataset.from_pyg(cora, name="cora")
    run = halograph.train(data, model="gcn", layers=2, hidden=16, epochs=200, weight_decay=5e-4, progress=False)
    print(run)

    model = run.to_pyg()
    with torch.no_grad():
        logits = model(cora.x, cora.edge_index)
    right = (logits.argmax(dim=1) == cora.y)[cora.test_mask]
    print(f"test accuracy in PyG {right.float().mean():.4f}")
    print(f"largest difference of logits {(logits - torch.from_numpy(run.predict())).abs().max():.0e}")


if __name__ == "__main__":
    main()
