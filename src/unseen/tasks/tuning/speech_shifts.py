"""speech_shifts: shifts of held-out speakers, to choose settings for `google_commands`."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.models import LeNet
from unseen.tasks.google_commands import PRESETS

UNSEEN = ("microphone", "telephone", "room", "distance", "throat")
VARIANTS = ("fold_0", "fold_1", "fold_2", "fold_3")  # folds of the training speakers, held out


def task(variant: str = "fold_0") -> Task:
    from unseen.data.speech import PUBLISHED_WORDS, available_words

    if variant not in VARIANTS:
        raise UnseenError(
            f'speech_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}'
        )
    fold, words = VARIANTS.index(variant), available_words()
    classes = len(words) if len(words) > 1 else PUBLISHED_WORDS
    return Task(
        name="speech_shifts",
        variant=variant,
        summary="for tuning google_commands: words -> other microphones, rooms, distances, voices",
        source=Domain("google_commands", partial(_load_source, fold)),
        targets=tuple(Domain(name, partial(_load_target, fold, name)) for name in UNSEEN),
        classes=classes,
        class_names=words if len(words) == classes else (),
        model=partial(LeNet, classes),
        sites=("conv1",),
        embedding="fc2",
        presets=PRESETS,
    )


def _load_source(fold: int, split: str) -> TensorDataset:
    from unseen.data.spectrograms import load_spectrograms
    from unseen.data.speech_shifts import load_held_out, load_train

    loaders = {
        "train": lambda: load_train(fold),
        "val": lambda: load_spectrograms("val"),
        "test": lambda: load_held_out(fold),
    }
    if split not in loaders:
        raise UnseenError(f'the source has no split "{split}"; it has: {", ".join(loaders)}')
    return ByteImages(*loaders[split]())


def _load_target(fold: int, shift: str, split: str) -> TensorDataset:
    from unseen.data.speech_shifts import load_held_out

    if split != "test":
        raise UnseenError(
            f'{shift} has no split "{split}", only test: '
            "speech_shifts is for choosing settings, not for adaptation"
        )
    return ByteImages(*load_held_out(fold, shift))
