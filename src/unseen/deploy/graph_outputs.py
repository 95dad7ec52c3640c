"""Leave outputs out of an ONNX file, without the package onnx.

onnxruntime runs every node of a graph, whatever outputs a call asks for. A file without the nodes
of an output has not their cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from unseen.errors import UnseenError

# Fields of ModelProto, GraphProto, ValueInfoProto, NodeProto and AttributeProto.
GRAPH = 7
NODE, OUTPUT = 1, 12
NAME = 1
NODE_INPUT, NODE_OUTPUT, ATTRIBUTE = 1, 2, 5
SUBGRAPHS = (6, 11)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protobuf


def keep_outputs(model: bytes, names: Collection[str]) -> bytes:
    """Return an ONNX model with these outputs of its graph alone."""
    parts: list[bytes | memoryview] = []
    for field, start, end, value in _fields(memoryview(model)):
        if field != GRAPH:
            parts.append(memoryview(model)[start:end])
            continue
        kept = _needed_parts(value, names)
        parts += [_varint(GRAPH << 3 | BYTES), _varint(sum(map(len, kept))), *kept]
    return b"".join(parts)


def _needed_parts(graph: memoryview, outputs: Collection[str]) -> list[memoryview]:
    """Return the fields of a graph without other outputs, and without nodes that only they need."""
    needed, kept = set(outputs), []
    for field, start, end, value in reversed(list(_fields(graph))):  # nodes are in running order
        if field == OUTPUT and not set(_texts(value, NAME)) & needed:
            continue
        if field == NODE:
            if not set(_texts(value, NODE_OUTPUT)) & needed:
                continue
            needed |= _inputs_of(value)
        kept.append(graph[start:end])
    return kept[::-1]


def _inputs_of(node: memoryview) -> set[str]:
    """Return the names that a node reads, also those in its subgraphs."""
    found = set(_texts(node, NODE_INPUT))
    for field, _, _, attribute in _fields(node):
        if field != ATTRIBUTE:
            continue
        for part, _, _, graph in _fields(attribute):
            if part not in SUBGRAPHS:
                continue
            for kind, _, _, value in _fields(graph):
                if kind == NODE:
                    found |= _inputs_of(value)
                elif kind == OUTPUT:
                    found.update(_texts(value, NAME))  # it may be a name of the outer graph
    return found


def _texts(message: memoryview, field: int) -> list[str]:
    return [bytes(value).decode() for number, _, _, value in _fields(message) if number == field]


def _fields(message: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield number, begin, end and content of each field; numbers have no content."""
    place = 0
    while place < len(message):
        start = place
        key, place = _read_varint(message, place)
        kind, content = key & 7, place
        if kind == VARINT:
            _, place = _read_varint(message, place)
            content = place
        elif kind == BYTES:
            length, content = _read_varint(message, place)
            place = content + length
        elif kind in (FIXED32, FIXED64):
            content = place = place + (4 if kind == FIXED32 else 8)
        else:
            raise UnseenError(f"not an ONNX file: a field has the wire type {kind}")
        if place > len(message):
            raise UnseenError("not an ONNX file: it is cut off")
        yield key >> 3, start, place, message[content:place]


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise UnseenError("not an ONNX file: a number is cut off")
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
