"""A classifier with the manners of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._dataset import Dataset, Path
from ._errors import HalographError, InputError
from ._run import Run
from ._train import train

if TYPE_CHECKING:
    from typing_extensions import Self


class NodeClassifier:
    """A node classifier: :func:`train` with the manners of scikit-learn, which is not needed.

    ``sklearn.base.clone`` clones it. A dataset takes the place of X and y.

    Args:
        **params: The settings of :func:`train`, such as ``model="gcn"``, ``hidden=64``, ``epochs=200``; also ``progress``,
            ``callbacks`` and ``force``. They are checked by :meth:`fit`.

    Attributes:
        run_ (Run): The run, after :meth:`fit`.
        n_features_in_ (int): Number of features, after :meth:`fit`.
        classes_ (numpy.ndarray): The classes 0, 1, 2…, after :meth:`fit`. Their names are ``dataset.class_names``.

    On ranks other than 0 of a launcher, :meth:`fit` sets ``run_`` only.

    Example:
        >>> classifier = halograph.NodeClassifier(model="gcn", hidden=64, epochs=200)
        >>> classifier.fit(data).score(data)
        0.81
    """

    run_: Run
    n_features_in_: int
    classes_: npt.NDArray[Any]

    def __init__(self, **params: Any) -> None:
        self._params = params

    def fit(self, dataset: Dataset | Path, y: None = None) -> Self:
        """Trains on the training nodes of the dataset, by its labels; returns ``self``. ``y`` must be ``None``."""
        _refuse_labels(y)
        self.run_ = train(dataset, **self._params)
        if self.run_.is_leader:
            self.n_features_in_ = self.run_._data_ref["features"]
            self.classes_ = np.arange(self.run_._data_ref["classes"])
        return self

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise HalographError("NodeClassifier: not fitted\n  help: call fit(dataset) first")
        return self.run_

    def predict(self, dataset: Dataset | Path | None = None) -> npt.NDArray[Any]:
        """Returns the class of each node, as :meth:`Run.predict` with ``output="classes"``."""
        return self._fitted().predict(dataset, output="classes")

    def predict_proba(self, dataset: Dataset | Path | None = None) -> npt.NDArray[Any]:
        """Returns the probability of each class, as :meth:`Run.predict` with ``output="probabilities"``."""
        return self._fitted().predict(dataset, output="probabilities")

    def score(
        self, dataset: Dataset | Path | None = None, y: None = None, *, subset: Literal["train", "val", "test"] = "test"
    ) -> float:
        """Returns the score on the nodes of a subset, by the metric of the run. Raises :class:`InputError` if no node of
        the subset has a label."""
        _refuse_labels(y)
        if subset not in ("train", "val", "test"):
            raise InputError.at("subset", f"{subset!r}: must be one of train, val, test")
        score: float | None = getattr(self._fitted().evaluate(dataset), subset)
        if score is None:
            raise InputError.at("dataset", f"no {subset} node has a label", "give masks and labels, or another subset")
        return score

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the settings that were given."""
        return dict(self._params)

    def set_params(self, **params: Any) -> Self:
        """Changes settings; returns ``self``."""
        self._params.update(params)
        return self

    def __repr__(self) -> str:
        return f"NodeClassifier({', '.join(f'{name}={value!r}' for name, value in self._params.items())})"


def _refuse_labels(y: object) -> None:
    if y is not None:
        raise InputError.at("y", "labels are those of the dataset", "give them to Dataset.from_arrays")
