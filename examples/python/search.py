"""Searches a grid of settings with the manners of scikit-learn: python examples/python/search.py"""

from itertools import product

import halograph


def main() -> None:
    data = halograph.Dataset.make("demo")
    base = {"model": "gcn", "layers": 2, "epochs": 40, "progress": False}
    searched = [
        halograph.NodeClassifier(**base, hidden=hidden, lr=lr).fit(data)
        for hidden, lr in product([16, 64], [0.001, 0.01])
    ]
    for classifier in searched:
        params = classifier.get_params()
        print(f"hidden {params['hidden']:2}, lr {params['lr']}: validation {classifier.score(data, subset='val'):.4f}")
    # The test nodes are scored once, with the settings that the validation nodes chose.
    best = max(searched, key=lambda classifier: classifier.score(data, subset="val"))
    print(f"best {best}: test {best.score(data):.4f}")


if __name__ == "__main__":
    main()
