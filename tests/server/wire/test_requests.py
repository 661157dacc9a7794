"""forward_backward bodies, as the SDK writes them and as they may arrive."""

from itertools import chain

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tinker import types

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.errors import WireError
from plait.server.wire.requests import parse_forward_backward
from tests.server.wire.sdk import body, call, datum

TARGETS = np.asarray([2, 3, 4])
WEIGHTS = np.asarray([0.0, 1.0, 0.5], dtype=np.float32)
SPANS: dict[str, list] = {
    "model_input_spans": [
        types.PromptProvenanceSpan(sequence_id="s0", length=1),
        types.SampledProvenanceSpan(sequence_id="s1", offset=4, length=2),
    ],
    "loss_fn_input_spans": [types.SampledProvenanceSpan(sequence_id="s1", length=3)],
}


def request(**changes: object) -> wire.ForwardBackwardRequest:
    """A whole one of a datum, to be broken."""
    message = wire.ForwardBackwardRequest.FromString(body([datum([1, 2, 3], target_tokens=TARGETS, weights=WEIGHTS)]))
    for field, value in changes.items():
        setattr(message, field, value)
    return message


def refused(message: wire.ForwardBackwardRequest) -> WireError:
    with pytest.raises(WireError) as caught:
        parse_forward_backward(message.SerializeToString(), None)
    return caught.value


def test_a_request_of_the_sdk_is_read_whole() -> None:
    data = [datum([[1, 2], [], [3]], SPANS, target_tokens=TARGETS, weights=WEIGHTS, mask=WEIGHTS), datum([9], target_tokens=[8])]
    parsed = parse_forward_backward(body(data, "ppo", {"clip_low_threshold": 0.7, "mode": "x"}, True, 12), None)
    assert (parsed.model_id, parsed.seq_id, parsed.loss_fn, parsed.forward_only) == ("session:train:0", 12, "ppo", True)
    assert parsed.config == {"clip_low_threshold": 0.7, "mode": "x"}
    first, second = parsed.datums
    assert first.tokens.dtype == np.int32
    assert (first.tokens.tolist(), second.tokens.tolist()) == ([1, 2, 3], [9])
    assert set(first.inputs) == {"target_tokens", "weights", "mask"}
    np.testing.assert_array_equal(first.inputs["target_tokens"], TARGETS)
    np.testing.assert_array_equal(first.inputs["weights"], WEIGHTS)
    assert [(span.kind, span.sequence_id, span.offset, span.length) for span in first.model_input_spans] == [
        ("prompt", "s0", 0, 1),
        ("sampled", "s1", 4, 2),
    ]
    assert [span.length for span in first.loss_fn_input_spans] == [3]
    assert second.model_input_spans == ()


@given(st.lists(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=4), max_size=4))
def test_chunks_are_joined_in_order(chunks: list[list[list[int]]]) -> None:
    parsed = call([datum(parts or [[]], target_tokens=[0]) for parts in chunks])
    assert [one.tokens.tolist() for one in parsed.datums] == [list(chain(*parts)) for parts in chunks]


def test_forward_is_not_forward_only_by_default() -> None:
    assert not call([]).forward_only
    assert call([]).datums == ()


def test_old_numbers_are_read_where_there_is_nothing_newer() -> None:
    old = request()
    old.loss_fn_config["beta"] = 0.25
    assert parse_forward_backward(old.SerializeToString(), "identity").config == {"beta": 0.25}
    old.loss_fn_config_v2["beta"].number = 0.5
    assert parse_forward_backward(old.SerializeToString(), "").config == {"beta": 0.5}


@pytest.mark.parametrize("write_size", [True, False])
def test_compressed_bodies_are_read(write_size: bool) -> None:
    plain = body([datum([1, 2, 3], target_tokens=TARGETS, weights=WEIGHTS)])
    packed = zstandard.ZstdCompressor(write_content_size=write_size).compress(plain)
    assert parse_forward_backward(packed, "zstd").datums[0].tokens.tolist() == [1, 2, 3]


@pytest.mark.parametrize("write_size", [True, False])
def test_a_compressed_body_cannot_grow_without_bound(write_size: bool) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=write_size).compress(bytes(10**6))
    assert len(packed) < 200
    with pytest.raises(WireError, match=r"holds .*1000"):
        parse_forward_backward(packed, "zstd", max_bytes=1000)


def test_a_plain_body_is_bounded_too() -> None:
    with pytest.raises(WireError, match="at most 10"):
        parse_forward_backward(bytes(11), None, max_bytes=10)


@pytest.mark.parametrize(("content", "encoding"), [(b"\xff\xff", None), (b"no zstd", "zstd"), (b"", "gzip"), (b"", "zstd")])
def test_what_is_no_request_is_refused(content: bytes, encoding: str | None) -> None:
    with pytest.raises(WireError):
        parse_forward_backward(content, encoding)


def test_torn_and_lengthened_compressed_bodies_are_refused() -> None:
    packed = zstandard.ZstdCompressor().compress(body([datum([1, 2, 3], target_tokens=TARGETS)]))
    for torn in (packed[:-3], packed + b"more"):
        with pytest.raises(WireError, match="torn"):
            parse_forward_backward(torn, "zstd")


@pytest.mark.parametrize(("field", "value"), [("model_id", ""), ("loss_fn", ""), ("seq_id", 0), ("seq_id", -1)])
def test_what_a_call_needs_is_named(field: str, value: object) -> None:
    assert refused(request(**{field: value})).field == field


def test_images_and_audio_are_refused() -> None:
    for kind in ("image", "dmel"):
        message = request()
        chunk = message.data[0].model_input.add()
        getattr(chunk, kind).SetInParent()
        error = refused(message)
        assert (error.datum_index, error.field) == (0, "model_input[1]")
        assert "text only" in str(error)


def test_an_empty_chunk_and_torn_tokens_are_named() -> None:
    message = request()
    message.data[0].model_input.add()
    assert "nothing" in str(refused(message))
    message = request()
    message.data[0].model_input[0].encoded_text.tokens = b"12345"
    assert refused(message).field == "model_input[0]"


def test_a_bad_tensor_is_named() -> None:
    message = request()
    message.data.add().CopyFrom(message.data[0])
    message.data[1].loss_fn_inputs["weights"].dense += b"\0"
    error = refused(message)
    assert (error.datum_index, error.field) == (1, "loss_fn_inputs.weights")
    assert str(error).startswith("datum 1, loss_fn_inputs.weights: 13 bytes")


def test_a_sparse_tensor_cannot_grow_without_bound() -> None:
    message = request()
    tensor = message.data[0].loss_fn_inputs["weights"]
    tensor.sparse_csr.crow_indices = np.zeros(4, dtype=np.int64).tobytes()
    del tensor.shape[:]
    tensor.shape.extend([3, 2**40])
    assert "cells" in str(refused(message))


def test_config_values_are_finite_and_there() -> None:
    message = request()
    message.loss_fn_config_v2["beta"].number = float("nan")
    assert refused(message).field == "loss_fn_config.beta"
    message.loss_fn_config_v2["beta"].Clear()
    assert "no value" in str(refused(message))


@pytest.mark.parametrize("field", ["model_input_spans", "loss_fn_input_spans"])
def test_spans_tile_their_field_and_come_as_a_pair(field: str) -> None:
    spanned = body([datum([1, 2, 3], SPANS, target_tokens=TARGETS)])
    short = wire.ForwardBackwardRequest.FromString(spanned)
    getattr(short.data[0], field)[-1].sampled_tokens.length = 77
    assert refused(short).field == field
    one_sided = wire.ForwardBackwardRequest.FromString(spanned)
    one_sided.data[0].ClearField(field)
    assert "0 positions, but there are 3" in str(refused(one_sided))


@pytest.mark.parametrize("change", [{"sequence_id": ""}, {"offset": -1}, {"length": -1}])
def test_spans_are_checked_one_by_one(change: dict) -> None:
    message = wire.ForwardBackwardRequest.FromString(body([datum([1, 2, 3], SPANS, target_tokens=TARGETS)]))
    for name, value in change.items():
        setattr(message.data[0].model_input_spans[1].sampled_tokens, name, value)
    assert refused(message).field == "model_input_spans[1]"
    message.data[0].model_input_spans[1].Clear()
    assert "neither" in str(refused(message))


@given(st.binary(max_size=200), st.sampled_from([None, "zstd"]))
def test_any_body_is_a_call_or_a_wire_error(content: bytes, encoding: str | None) -> None:
    try:
        parse_forward_backward(content, encoding)
    except WireError:
        return


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_damaged_body_is_a_call_or_a_wire_error(position: int, value: int) -> None:
    content = bytearray(body([datum([1, 2, 3], SPANS, target_tokens=TARGETS, weights=WEIGHTS)], "ppo", {"beta": 1.0}))
    content[position % len(content)] = value
    try:
        parse_forward_backward(bytes(content), None)
    except WireError:
        return
