"""Outputs are left out of an ONNX file together with the nodes that only they need."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unseen.deploy import open_scorer
from unseen.deploy.graph_outputs import keep_outputs
from unseen.deploy.onnx_detector import QUICK
from unseen.errors import UnseenError


def test_quick_graph_has_neither_other_outputs_nor_their_nodes(light_run):
    content = light_run.exported.read_bytes()
    whole, quick = (
        onnx.load_from_string(content),
        onnx.load_from_string(keep_outputs(content, QUICK)),
    )
    onnx.checker.check_model(quick)
    assert {o.name for o in quick.graph.output} == set(QUICK)
    assert len(quick.graph.node) < len(whole.graph.node) / 2
    assert quick.metadata_props == whole.metadata_props
    assert keep_outputs(content, {o.name for o in whole.graph.output}) != b""


def test_quick_answers_equal_those_of_the_whole_graph(light_run):
    scorer = open_scorer(light_run.exported, threads=1)
    x = np.random.default_rng(0).random((5, 2, 8, 8), dtype=np.float32)
    seen, (logits, scores) = scorer.observe(x), scorer.predict_and_score(x)
    np.testing.assert_array_equal(logits, seen.logits)
    np.testing.assert_array_equal(scores, seen.scores)
    assert scorer.domain_score(x) == scorer.domain_score_of(seen.features)


def test_subgraphs_keep_what_they_read():
    def branch(name: str) -> onnx.GraphProto:
        node = helper.make_node("Identity", [name], [f"{name}_out"])
        value = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [value])

    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["x"], ["b"]),
        helper.make_node("Exp", ["x"], ["other"]),
        helper.make_node(
            "If", ["yes"], ["chosen"], then_branch=branch("a"), else_branch=branch("b")
        ),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("chosen", "other")
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], outputs, [yes]))
    found = onnx.load_from_string(keep_outputs(model.SerializeToString(), ["chosen"]))
    onnx.checker.check_model(found)
    assert [n.op_type for n in found.graph.node] == ["Neg", "Abs", "If"]


@pytest.mark.parametrize("content", [b"\xff", b"\x3a\x7f", b"\x07", b"\xff" * 12])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(UnseenError, match="not an ONNX file"):
        keep_outputs(content, QUICK)
