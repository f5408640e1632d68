"""NodeClassifier: what scikit-learn expects of an estimator."""

import copy

import numpy as np
import pytest
from conftest import QUICK, assert_same_weights
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

import halograph
from halograph import InputError, NodeClassifier


def test_fit_predict_score(data):
    classifier = NodeClassifier(**{**QUICK, "epochs": 40})
    assert classifier.fit(data) is classifier
    run = classifier.run_
    np.testing.assert_array_equal(classifier.predict(data), run.predict(output="classes"))
    np.testing.assert_array_equal(classifier.predict_proba(data), run.predict(output="probabilities"))
    assert classifier.score(data) == run.scores.test
    assert classifier.score(data, subset="val") == run.scores.val
    assert classifier.n_features_in_ == 5
    np.testing.assert_array_equal(classifier.classes_, [0, 1, 2])
    assert_same_weights(run.state_dict(), halograph.train(data, **{**QUICK, "epochs": 40}).state_dict())


def test_clones_have_parameters_and_no_results(data):
    classifier = NodeClassifier(**QUICK, fanout=[3, 2], strategy="minibatch").fit(data)
    again = clone(classifier)
    assert type(again) is NodeClassifier and again.get_params() == classifier.get_params()
    assert not hasattr(again, "run_")
    with pytest.raises(Exception, match="fit"):
        again.predict(data)
    assert again.set_params(hidden=4, dropout=0.1) is again
    assert again.get_params()["hidden"] == 4 and classifier.get_params()["hidden"] == 8
    assert "hidden=4" in repr(again)


def test_a_grid_search_by_validation_score(data):
    grid = ParameterGrid({"lr": [1e-6, 0.05], "model": ["gcn", "sage"]})
    base = NodeClassifier(**{**QUICK, "epochs": 20, "norm": "none"})
    searched = [clone(base).set_params(**point).fit(data) for point in grid]
    best = max(searched, key=lambda classifier: classifier.score(data, subset="val"))
    assert best.get_params()["lr"] == 0.05
    assert best.score(data) > 0.6


def test_copies_keep_the_data_and_labels_are_refused(data):
    classifier = copy.deepcopy(NodeClassifier(**QUICK).fit(data))
    assert classifier.predict().shape == (60,)
    for use in (classifier.fit, classifier.score):
        with pytest.raises(InputError, match="y: labels"):
            use(data, data.y)


def test_parameters_are_checked_by_fit(data):
    classifier = NodeClassifier(hiden=8)
    with pytest.raises(InputError, match="hidden"):
        classifier.fit(data)
    with pytest.raises(InputError, match="label"):
        NodeClassifier(**QUICK).fit(data).score(halograph.Dataset.from_arrays([[0], [1]], np.ones((2, 5))))
    with pytest.raises(InputError, match="subset"):
        NodeClassifier(**QUICK).fit(data).score(data, subset="all")
