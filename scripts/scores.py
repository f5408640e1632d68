#!/usr/bin/env python3
"""Write crates/train/tests/scores.json: what scikit-learn says about predictions, for crates/train/tests/it/scores.rs.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    python scripts/scores.py

Each case has `truth` and `predicted`: classes, or rows of 0 and 1 for multi-label data; the number of `classes`; and the
scores. Scores that scikit-learn does not define (balanced accuracy of multi-label data, a confusion matrix of it) are absent.
"""

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

PINNED = {"scikit-learn": "1.9.1", "numpy": "2.4.6"}
for package, wanted in PINNED.items():
    if (found := version(package)) != wanted:
        sys.exit(f"scores.py: {package} {found} is installed, but {wanted} is needed: pip install {package}=={wanted}")

import numpy as np
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

OUT = Path(__file__).resolve().parent.parent / "crates/train/tests/scores.json"


def per_class(truth, predicted, labels):
    names = ["precision", "recall", "f1", "support"]
    values = metrics.precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
    return {name: value.tolist() for name, value in zip(names, values)}


def single(name, classes, truth, predicted):
    truth, predicted = np.array(truth), np.array(predicted)
    labels = np.arange(classes)
    f1 = lambda average: float(metrics.f1_score(truth, predicted, average=average, zero_division=0))
    return {
        "name": name, "classes": classes, "truth": truth.tolist(), "predicted": predicted.tolist(),
        "accuracy": float(metrics.accuracy_score(truth, predicted)),
        "balanced_accuracy": float(metrics.balanced_accuracy_score(truth, predicted)),
        "macro_f1": f1("macro"), "micro_f1": f1("micro"),
        "confusion": metrics.confusion_matrix(truth, predicted, labels=labels).tolist(),
    } | per_class(truth, predicted, labels)


def multi(name, truth, predicted):
    truth, predicted = np.array(truth), np.array(predicted)
    f1 = lambda average: float(metrics.f1_score(truth, predicted, average=average, zero_division=0))
    return {
        "name": name, "classes": truth.shape[1], "truth": truth.tolist(), "predicted": predicted.tolist(),
        "macro_f1": f1("macro"), "micro_f1": f1("micro"),
    } | per_class(truth, predicted, np.arange(truth.shape[1]))


def balanced(truth, classes):
    """compute_class_weight refuses classes that do not occur."""
    weights = compute_class_weight("balanced", classes=np.unique(truth), y=np.array(truth))
    return {"classes": classes, "truth": list(truth), "present": np.unique(truth).tolist(), "weights": weights.tolist()}


def main():
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1)
    draw = lambda classes, size: rng.integers(0, classes, size)
    skewed = np.where(rng.random(60) < 0.9, 0, draw(4, 60))
    cases = [single(f"random, {k} classes", k, draw(k, 40), draw(k, 40)) for k in (2, 3, 7)]
    cases += [
        single("mostly right", 4, skewed, np.where(rng.random(60) < 0.8, skewed, draw(4, 60))),
        single("a class never predicted", 3, draw(3, 30), draw(2, 30)),
        single("a class without support", 3, draw(2, 30), draw(3, 30)),
        single("a class neither true nor predicted", 5, draw(3, 30), draw(3, 30)),
        single("always the majority", 4, skewed, np.zeros(60, int)),
        single("one class only", 1, [0, 0, 0], [0, 0, 0]),
        single("one of two classes", 2, [1, 1, 1], [1, 1, 1]),
        single("all wrong", 2, [0, 0, 1], [1, 1, 0]),
        single("one row", 3, [2], [1]),
    ]
    # scikit-learn takes a single column for two classes.
    cases += [multi("multi-label, 4 classes", draw(2, (25, 4)), draw(2, (25, 4)))]
    truth, predicted = draw(2, (25, 4)), draw(2, (25, 4))
    truth[:, 1], predicted[:, 2] = 0, 0
    cases += [multi("multi-label, without support and never predicted", truth, predicted)]
    truth, predicted = draw(2, (25, 3)), draw(2, (25, 3))
    truth[:, 0] = predicted[:, 0] = 0
    cases += [multi("multi-label, neither true nor predicted", truth, predicted)]
    cases += [multi("multi-label, nothing", np.zeros((5, 2), int), np.zeros((5, 2), int))]
    weights = [balanced(skewed.tolist(), 4), balanced([0, 0, 2, 2, 2, 5], 6), balanced([1, 1], 2)]
    text = json.dumps({"cases": cases, "balanced": weights}, separators=(",", ":"))
    OUT.write_text(text.replace('{"name"', '\n{"name"').replace('"balanced":[', '\n"balanced":[') + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
