"""Word dropout: leave words out of bags of words (Iyyer et al., ACL 2015)."""

from __future__ import annotations

import torch
from torch import Tensor

from unseen.augmentations.settings import Probability, augmentation
from unseen.errors import UnseenError
from unseen.nn.inputs import describe_tensors, inputs


@augmentation
def word_dropout(x: Tensor, rate: Probability = 0.2, vary: bool = False) -> Tensor:
    """Set each count (N, words) to zero with a probability; the others stay as they are.

    Args:
        rate: The probability.
        vary: Draw that of each text from U(0, rate).
    """
    given = inputs(x)
    if len(given) != 1 or given[0].dim() != 2 or not given[0].is_floating_point():
        raise UnseenError(
            "word_dropout needs bags of words, one input (N, words) of floats; this model is given "
            f"{describe_tensors(given)}"
        )
    (x,) = given
    rates = rate * (torch.rand(len(x)) if vary else torch.ones(len(x)))
    texts, words = x.nonzero(as_tuple=True)  # a small part of the vocabulary
    dropped = (torch.rand(len(texts)) < rates[texts.cpu()]).to(x.device)
    out = x.clone()
    out[texts[dropped], words[dropped]] = 0
    return out
