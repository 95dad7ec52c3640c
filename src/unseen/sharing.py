"""Methods on the Hugging Face Hub: delegates to integrations/hub.py, which needs an extra."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound="Sharing")


class Sharing:
    """Gives a method the verbs of models on the Hub."""

    def push_to_hub(self, repo_id: str, *, card: Any = None, **options: Any) -> str:
        """Upload weights, settings, calibration and a model card; return the address.

        Args:
            card: an `unseen.integrations.hub.Card`, or a run's folder to take results from.
            options: of `huggingface_hub.ModelHubMixin.push_to_hub`, such as private, token, branch.
        """
        address: str = _hub().push(self, repo_id, card, options)
        return address

    def save_pretrained(self, folder: str | Path, *, card: Any = None) -> None:
        """Write to a folder what `push_to_hub` uploads."""
        _hub().save(self, folder, card)

    @classmethod
    def from_pretrained(
        cls: type[M], name: str | Path, model: nn.Module | None = None, **options: Any
    ) -> M:
        """Load a method from the Hub or from a folder, around your model.

        No code from the repository is run, or downloaded. Leave the model out if it is one that
        `unseen` ships. Call it on `unseen.Method` to load whichever method was saved.

        Args:
            options: of `huggingface_hub.ModelHubMixin.from_pretrained`, such as revision and token;
                and settings that are functions, which are not saved.
        """
        loaded: M = _hub().load(cls, name, model, options)
        return loaded


def _hub() -> Any:
    # By name, because integrations stand above this module.
    return importlib.import_module("unseen.integrations.hub")
