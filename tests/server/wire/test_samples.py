"""Samples, read by the SDK."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker.proto.response_conv import deserialize_sample_response

from plait.server.wire.models.target_tensor import TargetTensor
from plait.server.wire.samples import (
    EMPTY_LOGPROB,
    PromptResult,
    SequenceResult,
    TargetScores,
    TopLogprobs,
    encode_sample_response,
)
from plait.types.sampling import StopReason


def float32s(values: list) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)


def int32s(values: list) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)


NO_SEQUENCES: list[SequenceResult] = []
TOKENS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(max_value=0, width=32, allow_infinity=False)), max_size=6)


@given(st.lists(TOKENS, max_size=4))
def test_sequences_are_read_exactly(sequences: list[list[tuple[int, float]]]) -> None:
    results = [
        SequenceResult([token for token, _ in pairs], [logprob for _, logprob in pairs], StopReason.LENGTH) for pairs in sequences
    ]
    response = deserialize_sample_response(encode_sample_response(results, PromptResult(3, 2)))
    assert [found.tokens for found in response.sequences] == [list(result.tokens) for result in results]
    for found, result in zip(response.sequences, results, strict=True):
        assert (found.logprobs or []) == result.logprobs
    assert response.prompt_cache_hit_tokens == 2
    assert response.prompt_logprobs is response.topk_prompt_logprobs is response.target_prompt_logprobs is None
    assert response.prompt_alt_tokens is None


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (StopReason.STOP_TOKEN, "stop"),
        (StopReason.STOP_STRING, "stop"),
        (StopReason.LENGTH, "length"),
        (StopReason.CONTEXT, "length"),
    ],
)
def test_stop_reasons_are_told(reason: StopReason, word: str) -> None:
    sequence = SequenceResult((1, 2), (-0.5, -1.0), reason)
    assert deserialize_sample_response(encode_sample_response([sequence], PromptResult(1))).sequences[0].stop_reason == word


@pytest.mark.parametrize("reason", [StopReason.BUDGET, StopReason.FAILED, StopReason.CANCELLED])
def test_what_did_not_finish_is_no_result(reason: StopReason) -> None:
    with pytest.raises(ValueError, match="is no result"):
        encode_sample_response([SequenceResult((), (), reason)], PromptResult(1))


def test_prompt_logprobs_have_the_prompts_length_and_begin_with_nothing() -> None:
    prompt = PromptResult(3, logprobs_L=float32s([7.0, -1.0, np.nan]))
    response = deserialize_sample_response(encode_sample_response(NO_SEQUENCES, prompt))
    assert response.prompt_logprobs == [None, -1.0, None]


def test_top_tables_are_read_with_their_empty_cells() -> None:
    ids = int32s([[0, 0], [5, 6], [7, 0]]).tobytes()
    logprobs = float32s([[EMPTY_LOGPROB, EMPTY_LOGPROB], [-1, -2], [-3, EMPTY_LOGPROB]]).tobytes()
    top = TopLogprobs.from_bytes(ids, logprobs, 2)
    sequence = SequenceResult((5, 7), (-1.0, -3.0), StopReason.LENGTH, TopLogprobs(top.ids_NK[1:], top.logprobs_NK[1:]))
    response = deserialize_sample_response(encode_sample_response([sequence], PromptResult(3, top=top)))
    assert response.topk_prompt_logprobs == [None, [(5, -1.0), (6, -2.0)], [(7, -3.0)]]
    assert response.sequences[0].topk_logprobs == [[(5, -1.0), (6, -2.0)], [(7, -3.0)]]


@pytest.mark.parametrize("first_row", [True, False])
def test_alternatives_begin_after_the_first_position(first_row: bool) -> None:
    ids, logprobs = int32s([[0, 0], [5, 6], [7, 8]]), float32s([[0, 0], [-1, -2], [-3, -4]])
    drawn = TopLogprobs(ids, logprobs) if first_row else TopLogprobs(ids[1:], logprobs[1:])
    response = deserialize_sample_response(encode_sample_response(NO_SEQUENCES, PromptResult(3, alternatives=drawn)))
    assert response.prompt_alt_tokens is not None
    assert response.prompt_alt_tokens.tokens.tolist() == [[5, 6], [7, 8]]
    assert response.prompt_alt_tokens.tokens.dtype == "int64"
    assert response.prompt_alt_tokens.logprobs.tolist() == [[-1.0, -2.0], [-3.0, -4.0]]


def test_dense_target_scores_are_zero_where_nothing_was_asked() -> None:
    scores = TargetScores(float32s([[-1, np.nan], [np.nan, -2]]))
    response = deserialize_sample_response(encode_sample_response(NO_SEQUENCES, PromptResult(3, targets=scores)))
    assert response.target_prompt_logprobs is not None
    assert response.target_prompt_logprobs.tolist() == [[-1.0, 0.0], [0.0, -2.0]]


def test_sparse_target_scores_travel_in_the_requests_layout() -> None:
    asked = TargetTensor(data=[9, -1, 8], dtype="int64", shape=[2, 3], sparse_crow_indices=[0, 2, 3], sparse_col_indices=[0, 2, 1])
    np.testing.assert_array_equal(asked.ids, [[9, -1, -1], [-1, 8, -1]])
    scored = np.where(asked.ids >= 0, -asked.ids.astype(np.float32), np.nan)
    scores = TargetScores(scored, asked.sparse_crow_indices, asked.sparse_col_indices)
    found = deserialize_sample_response(
        encode_sample_response(NO_SEQUENCES, PromptResult(3, targets=scores))
    ).target_prompt_logprobs
    assert found is not None
    assert (found.data, found.shape, found.dtype) == ([-9.0, 0.0, -8.0], [2, 3], "float32")
    assert (found.sparse_crow_indices, found.sparse_col_indices) == ([0, 2, 3], [0, 2, 1])


@pytest.mark.parametrize(
    "prompt",
    [
        PromptResult(3, logprobs_L=np.zeros(2, np.float32)),
        PromptResult(3, top=TopLogprobs(np.zeros((2, 1)), np.zeros((2, 1)))),
        PromptResult(3, top=TopLogprobs(np.zeros((3, 1)), np.zeros((3, 2)))),
        PromptResult(3, targets=TargetScores(np.zeros((3, 1)))),
        PromptResult(3, alternatives=TopLogprobs(np.zeros((1, 1)), np.zeros((1, 1)))),
    ],
)
def test_arrays_of_the_wrong_length_are_an_error(prompt: PromptResult) -> None:
    with pytest.raises(ValueError, match="entries, not"):
        encode_sample_response(NO_SEQUENCES, prompt)
