"""The scikit-learn classifier: the contract of scikit-learn, and what unseen adds to it."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from unseen.errors import UnseenError
from unseen.integrations.sklearn import UnseenClassifier


def samples(n=120, blend=0.0, seed=0):
    random = np.random.default_rng(seed)
    y = np.array(["cat", "dog", "owl"])[np.arange(n) % 3]
    centres = 4 * np.eye(5)[np.arange(n) % 3]
    return 10 * ((1 - blend) * centres + random.normal(size=(n, 5))), y


@pytest.fixture(scope="module")
def pipeline():
    made = make_pipeline(StandardScaler(), UnseenClassifier("erm", steps=60, random_state=0))
    return made.fit(*samples())


def test_classifier_passes_the_checks_of_scikit_learn():
    """None is excluded. Only the array API is skipped, as scipy's is off without a variable."""
    logging.disable(logging.WARNING)  # few held-out samples
    try:
        found = check_estimator(
            UnseenClassifier("erm", steps=25, lr=1e-2, random_state=0), on_skip=None
        )
    finally:
        logging.disable(logging.NOTSET)
    skipped = [check["check_name"] for check in found if check["status"] != "passed"]
    assert len(found) > 40 and skipped == ["check_array_api_input"]


def test_pipeline_predicts_scores_and_alarms(pipeline):
    X, y = samples(90, seed=1)
    far, _ = samples(90, blend=1.0, seed=1)
    assert pipeline.score(X, y) > 0.9
    probabilities = pipeline.predict_proba(X)
    assert probabilities.shape == (90, 3) and np.allclose(probabilities.sum(1), 1)
    assert (pipeline.classes_[probabilities.argmax(1)] == pipeline.predict(X)).all()
    assert pipeline.score_samples(X).mean() > pipeline.score_samples(far).mean()
    scaler, classifier = pipeline[0], pipeline[-1]
    X, far = scaler.transform(X), scaler.transform(far)
    assert classifier.alarm(far) and not classifier.alarm(X)
    net, x = classifier.net_, torch.tensor(far, dtype=torch.float32)
    assert np.allclose(classifier.score_samples(far), -net.uncertainty(x).numpy())
    assert classifier.domain_score(far) == pytest.approx(net.domain_score(x))


@pytest.mark.usefixtures("quick_estimators")
def test_verdict_is_that_of_the_method(pipeline):
    classifier = pipeline[-1]
    far = pipeline[0].transform(samples(60, blend=1.0, seed=1)[0])
    found = classifier.verdict(far)
    assert found.verdict in ("shifted", "failing", "unknown") and found.rate == 0.01
    assert found == classifier.net_.verdict(torch.tensor(far, dtype=torch.float32))


def test_same_seed_gives_the_same_classifier_and_leaves_torch_alone():
    X, y = samples()
    state = torch.get_rng_state()
    one = UnseenClassifier(steps=8, random_state=3).fit(X, y)
    assert torch.equal(state, torch.get_rng_state())
    other = clone(one).fit(X, y)
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert np.array_equal(one.score_samples(X), other.score_samples(X))
    copied = pickle.loads(pickle.dumps(one))
    assert np.array_equal(one.score_samples(X), copied.score_samples(X))
    assert copied.alarm(X) == one.alarm(X)


def test_cross_validation_and_parameters_work():
    X, y = samples(60)
    made = UnseenClassifier("erm", steps=40, lr=1e-2, random_state=0)
    assert cross_val_score(make_pipeline(StandardScaler(), made), X, y, cv=2).min() > 0.8
    assert made.set_params(hidden=8).get_params()["hidden"] == 8
    assert made.fit(X, y).net_.model.fc1.out_features == 8


def test_images_and_networks_of_ones_own_work():
    X = np.random.default_rng(0).random((24, 1, 8, 8))
    y = np.arange(24) % 2
    default = UnseenClassifier("erm", steps=2).fit(X, y)
    assert default.predict_proba(X).shape == (24, 2)

    def network(classes, shape):
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))

    own = UnseenClassifier("erm", steps=2, network=network).fit(X, y)
    assert own.net_.model[1].in_features == 64 and own.predict(X).shape == (24,)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "none"}, "no method 'none'"),
        ({"steps": 0}, "steps"),
        ({"lr": -1.0}, "lr"),
        ({"held_out": 1.5}, "held_out"),
        ({"settings": {"wings": 2}}, "wings"),
        ({"network": "mine:build"}, "network must be a function that returns a torch.nn.Module"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UnseenError, match=message):
        UnseenClassifier(**parameters).fit(*samples(12))


def test_classifier_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        UnseenClassifier().alarm(np.zeros((2, 2)))
