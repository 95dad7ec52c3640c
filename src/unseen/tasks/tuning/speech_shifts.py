"""speech_shifts: where the settings of `google_commands` are chosen. The same source; unseen are shifts of held-out speakers."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import Pictures
from unseen.errors import UnseenError
from unseen.models import LeNet
from unseen.tasks.google_commands import PRESETS

UNSEEN = ("microphone", "telephone", "room", "distance", "throat")
VARIANTS = (
    "fold_0",
    "fold_1",
    "fold_2",
    "fold_3",
)  # a fold of the training speakers is held out, and the shifts are made of it


def task(variant: str = "fold_0") -> Task:
    from unseen.data.speech import PUBLISHED_WORDS, words_there

    if variant not in VARIANTS:
        raise UnseenError(
            f'speech_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}'
        )
    fold, words = VARIANTS.index(variant), words_there()
    classes = len(words) if len(words) > 1 else PUBLISHED_WORDS
    return Task(
        name="speech_shifts",
        variant=variant,
        summary="spoken words -> other microphones, telephones, rooms, distances, throats; to choose settings on",
        source=Domain("google_commands", partial(_source, fold)),
        targets=tuple(Domain(name, partial(_shifted, fold, name)) for name in UNSEEN),
        classes=classes,
        class_names=words if len(words) == classes else (),
        model=partial(LeNet, classes),
        sites=("conv1",),
        embedding="fc2",
        presets=PRESETS,
    )


def _source(fold: int, split: str) -> TensorDataset:
    from unseen.data.spectrograms import spectrograms
    from unseen.data.speech_shifts import held_out, left_in

    loads = {
        "train": lambda: left_in(fold),
        "val": lambda: spectrograms("val"),
        "test": lambda: held_out(fold),
    }
    if split not in loads:
        raise UnseenError(f'the source has no split "{split}"; it has: {", ".join(loads)}')
    return Pictures(*loads[split]())


def _shifted(fold: int, shift: str, split: str) -> TensorDataset:
    from unseen.data.speech_shifts import held_out

    if split != "test":
        raise UnseenError(
            f'{shift} has no split "{split}", only test: speech_shifts is for choosing settings, not for adapting'
        )
    return Pictures(*held_out(fold, shift))
