"""Every kind of model in docs/models.md trains, scores, alarms on a strong shift, saves, loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_kinds import KINDS, check_kind, hugging_face_kinds

PAGE = Path(__file__).parents[2] / "docs/models.md"
OF_TRANSFORMERS = [f"{name} of transformers" for name in ("ViT", "ResNet", "BERT")]


@pytest.mark.parametrize("name", KINDS)
def test_kind_of_model_works(name, tmp_path):
    check_kind(KINDS[name], tmp_path)


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_model_of_transformers_works(name, tmp_path):
    pytest.importorskip("transformers")
    net = check_kind(hugging_face_kinds()[name], tmp_path)
    # A mask or class tokens of batch B do not fit K * B rows: the inputs are folded.
    assert net._forward.fold_at == ("site" if "ResNet" in name else "input")


def test_the_page_has_a_row_for_every_kind():
    rows = re.findall(r"^\| ([^|]+?) \| `([^`]+)` \| `([^`]+)` \|", PAGE.read_text(), re.M)
    kinds = {name: (kind.site, kind.embedding) for name, kind in KINDS.items()}
    assert {name: layers for name, *layers in rows if name in kinds} == {
        name: list(layers) for name, layers in kinds.items()
    }
    assert {name for name, *_ in rows} == {*KINDS, *OF_TRANSFORMERS}
