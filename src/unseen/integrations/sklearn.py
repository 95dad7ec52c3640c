"""A scikit-learn classifier for arrays that scores samples and raises alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from unseen.api import Method
from unseen.checks import check_fraction, check_int, check_positive
from unseen.detection.verdict import TOLERANCE, Verdict
from unseen.errors import UnseenError
from unseen.methods import METHODS, method_named
from unseen.nn.inputs import describe_type
from unseen.tasks.own_network import Network, default_network, own_network
from unseen.training.fit import fit

Numbers = np.ndarray[Any, np.dtype[Any]]
LARGEST_SEED = 2**31 - 1


class UnseenClassifier(ClassifierMixin, BaseEstimator):
    """A network that is trained on one source and scores how far samples are from it.

    Part of the data is held out: it calibrates the alarm and the accuracy estimate.

    Args:
        method: a name from `unseen methods`.
        steps: number of updates.
        batch_size: samples in an update.
        hidden: width of the network for tables.
        lr: learning rate.
        held_out: fraction of the data that is not trained on.
        rate: of false alarms, for `alarm` and `verdict`.
        settings: further settings of the method.
        network: a function that returns a torch.nn.Module; it is called with those of classes and
            shape that it has as arguments. By default a network of unseen's for the shape.
        random_state: seed, numpy.random.RandomState or None.
        device: "auto", "cpu" or "cuda".
    """

    def __init__(
        self,
        method: str = "uncertainty_guided",
        *,
        steps: int = 500,
        batch_size: int = 32,
        hidden: int = 64,
        lr: float = 1e-3,
        held_out: float = 0.2,
        rate: float = 0.01,
        settings: Mapping[str, Any] | None = None,
        network: Callable[..., nn.Module] | None = None,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.hidden = hidden
        self.lr = lr
        self.held_out = held_out
        self.rate = rate
        self.settings = settings
        self.network = network
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> UnseenClassifier:
        """Train on arrays: rows of a table, or samples of any shape; then calibrate."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        random = check_random_state(self.random_state)
        train, held_out = self._split(labels, random)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(int(random.randint(LARGEST_SEED)))
            self.net_ = self._make_net(X.shape[1:])
            self.history_ = fit(
                self.net_,
                self._loader(X, labels, train, shuffle=True),
                steps=self.steps,
                held_out=None if held_out is None else self._loader(X, labels, held_out),
                device=self.device,
                progress=False,
            )
        self.n_iter_ = self.steps
        return self

    def predict(self, X: Any) -> Numbers:
        """Return the most likely class of every sample."""
        probabilities = self.predict_proba(X)
        found: Numbers = self.classes_[probabilities.argmax(1)]
        return found

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of every class, (N, classes)."""
        return self._map(X, lambda net, x: net.predict(x).double().softmax(1))

    def score_samples(self, X: Any) -> Numbers:
        """Return a number per sample; lower is further from the source, as in scikit-learn.

        It is minus the uncertainty of `unseen`.
        """
        return self._map(X, lambda net, x: -net.uncertainty(x))

    def domain_score(self, X: Any) -> float:
        """Return one score for all samples, as those of one domain; higher is further away."""
        return self._net().domain_score(self._tensor(X))

    def alarm(self, X: Any) -> bool:
        """Return whether the samples are further from the source than chance explains."""
        return self._net().alarm(self._tensor(X), self.rate)

    def verdict(self, X: Any, tolerance: float = TOLERANCE) -> Verdict:
        """Judge the samples, of one domain without labels: ok, shifted, failing or unknown."""
        return self._net().verdict(self._tensor(X), tolerance, self.rate)

    def _check_parameters(self) -> None:
        if self.method not in METHODS:
            raise UnseenError(f"there is no method {self.method!r}: choose {', '.join(METHODS)}")
        for name in ("steps", "batch_size", "hidden"):
            check_int(name, getattr(self, name), 1)
        check_positive("lr", self.lr)
        check_fraction("held_out", self.held_out, zero=True)
        check_fraction("rate", self.rate)

    def _split(self, labels: Numbers, random: Any) -> tuple[Numbers, Numbers | None]:
        """Return the rows to train on and those that are held out; few samples are all trained."""
        rows, counts = np.arange(len(labels)), np.bincount(labels)
        held = round(self.held_out * len(rows))
        if held < len(counts) or len(rows) - held < len(counts) or counts.min() < 2:
            return rows, None
        train, held_out = train_test_split(
            rows, test_size=held, stratify=labels, random_state=random
        )
        return train, held_out

    def _make_net(self, shape: tuple[int, ...]) -> Method:
        classes = len(self.classes_)
        if self.network is not None and not callable(self.network):
            raise UnseenError(
                "network must be a function that returns a torch.nn.Module, not "
                f"{describe_type(self.network)}"
            )
        if self.network is None:
            found = default_network("array", "classes", shape, classes)
            model = found.factory(hidden=self.hidden) if len(shape) == 1 else found.factory()
        else:
            found = Network(own_network(self.network, shape, classes), "auto", "auto")
            model = found.factory()
        chosen = {"lr": self.lr, **(self.settings or {})}
        kind = method_named(self.method)
        return kind(model, sites=found.sites, embedding=found.embedding, **chosen)

    def _loader(
        self, X: Numbers, labels: Numbers, rows: Numbers, shuffle: bool = False
    ) -> DataLoader[Any]:
        data = TensorDataset(torch.from_numpy(X[rows]), torch.from_numpy(labels[rows]))
        size = min(self.batch_size, len(rows))
        # A last batch of one sample would fail in networks with batch normalisation.
        return DataLoader(data, size, shuffle=shuffle, drop_last=shuffle)

    def _net(self) -> Method:
        check_is_fitted(self)
        return self.net_

    def _tensor(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        return torch.from_numpy(np.ascontiguousarray(X))

    def _map(self, X: Any, function: Callable[[Method, Tensor], Tensor]) -> Numbers:
        """Apply a function to batches of the samples."""
        net, x = self._net(), self._tensor(X)
        # Methods that predict from random passes give the same answer for the same samples.
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(0)
            parts = [function(net, part).cpu() for part in x.split(1024)]
        return torch.cat(parts).numpy()
