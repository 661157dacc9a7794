"""Datums for the trainer, and answers in the client's shapes."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tinker import types

from plait.server.wire.datums import MAX_TARGETS, TrainingInput, to_datums
from plait.server.wire.errors import WireError
from plait.types.datum import Datum
from tests.server.wire.sdk import call, datum


def float32s(values: list) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)


VOCAB, CONTEXT = 100, 16
TOKENS = [5, 6, 7]
POLICY: dict[str, Any] = {"target_tokens": [6, 7, 8], "logprobs": float32s([0, -1, -2]), "advantages": float32s([0, 0.5, -0.5])}
SUPERVISED: dict[str, Any] = {"target_tokens": [6, 7, 8], "weights": float32s([0, 1, -0.25])}


def converted(data: list[types.Datum], loss_fn: str = "cross_entropy") -> TrainingInput:
    return to_datums(call(data, loss_fn), VOCAB, CONTEXT)


def refused(data: list[types.Datum], loss_fn: str = "cross_entropy") -> WireError:
    with pytest.raises(WireError) as caught:
        converted(data, loss_fn)
    return caught.value


def test_cross_entropy_takes_targets_and_weights() -> None:
    result = converted([datum(TOKENS, **SUPERVISED)])
    assert result.datums == (Datum(tokens=(5, 6, 7), target_tokens=(6, 7, 8), weights=(0.0, 1.0, -0.25)),)
    assert result.shapes == ((3,),)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce"])
def test_policy_losses_take_logprobs_and_advantages(loss_fn: str) -> None:
    unknown: dict[str, Any] = {"mask": float32s([0, 1, 1]), "anything": float32s([[1]])}
    (found,) = converted([datum(TOKENS, **POLICY, **unknown)], loss_fn).datums
    assert found == Datum(tokens=(5, 6, 7), target_tokens=(6, 7, 8), logprobs=(0.0, -1.0, -2.0), advantages=(0.0, 0.5, -0.5))
    (weighted,) = converted([datum(TOKENS, **POLICY, weights=[0, 1, 1])], loss_fn).datums
    assert weighted.weights == (0.0, 1.0, 1.0)


def test_the_ratio_mask_is_for_gspo_alone() -> None:
    data = [datum(TOKENS, **POLICY, sequence_ratio_mask=[0, 1, 1])]
    assert converted(data, "gspo").datums[0].sequence_ratio_mask == (0.0, 1.0, 1.0)
    assert converted(data, "ppo").datums[0].sequence_ratio_mask == ()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_columns_are_split_and_folded_back(sizes: list[tuple[int, int]], random: object) -> None:
    """K of 0 stands for targets of one dimension."""
    generator = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    shapes = [(num_tokens, num_columns) if num_columns else (num_tokens,) for num_tokens, num_columns in sizes]
    targets = [generator.integers(0, VOCAB, shape) for shape in shapes]
    weights = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    prompts = [generator.integers(0, VOCAB, shape[0]).tolist() for shape in shapes]
    data = [datum(p, target_tokens=t, weights=w) for p, t, w in zip(prompts, targets, weights, strict=True)]
    result = converted(data)
    assert len(result.datums) == sum(max(num_columns, 1) for _, num_columns in sizes)
    assert {len(one.tokens) for one in result.datums} == {num_tokens for num_tokens, _ in sizes}
    # A trainer that answers with its targets, or with its weights.
    echoed = result.fold([np.asarray(one.target_tokens, dtype="<f4").tobytes() for one in result.datums])
    weighed = result.fold([np.asarray(one.weights, dtype="<f4").tobytes() for one in result.datums])
    for index, shape in enumerate(shapes):
        assert (echoed[index].shape, echoed[index].dtype) == (shape, np.float32)
        np.testing.assert_array_equal(echoed[index], targets[index])
        np.testing.assert_array_equal(weighed[index], weights[index])


def test_sparse_targets_are_columns_too() -> None:
    targets = np.zeros((3, 8), dtype=np.int64)
    targets[0, 1], targets[2, 0] = 9, 11
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = datum(TOKENS, target_tokens=torch.from_numpy(targets).numpy(), weights=np.zeros((3, 8), dtype=np.float32))
        sparse = types.TensorData.from_torch_sparse(torch.from_numpy(targets))
        weights = types.TensorData.from_torch_sparse(torch.from_numpy((targets > 0).astype(np.float32)))
    assert sparse.sparse_crow_indices is not None
    result = converted([datum(TOKENS, target_tokens=sparse, weights=weights), data])
    assert [one.target_tokens for one in result.datums[:3]] == [(0, 0, 11), (9, 0, 0), (0, 0, 0)]
    assert [one.weights for one in result.datums[:3]] == [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
    assert [one.target_tokens for one in result.datums[8:]] == [one.target_tokens for one in result.datums[:8]]


def test_answers_that_do_not_fit_are_an_error() -> None:
    result = converted([datum(TOKENS, **SUPERVISED)])
    with pytest.raises(ValueError, match="0 answers for 1 datums"):
        result.fold([])
    with pytest.raises(ValueError, match=r"\[2\] log-probabilities"):
        result.fold([bytes(8)])


@pytest.mark.parametrize(
    ("loss_fn", "changes", "field", "words"),
    [
        ("cross_entropy", {"weights": None}, "weights", "is missing: loss 'cross_entropy' needs it. Inputs that came: advantages"),
        ("cross_entropy", {"target_tokens": None}, "target_tokens", "is missing"),
        ("ppo", {"logprobs": None}, "logprobs", "is missing"),
        ("dro", {"advantages": None}, "advantages", "is missing"),
        ("ppo", {"logprobs": [0.0, 1.0]}, "logprobs", "must have the shape [3], not [2]"),
        ("ppo", {"advantages": [0.0, np.nan, 1.0]}, "advantages", "must be finite, not nan (at [1])"),
        ("ppo", {"weights": [0.0, np.inf, 1.0]}, "weights", "must be finite, not inf (at [1])"),
        ("gspo", {"sequence_ratio_mask": [1.0]}, "sequence_ratio_mask", "must have the shape [3], not [1]"),
        ("ppo", {"clip_low_threshold": [0.1, 0.1, 0.1]}, "clip_low_threshold", "Put it into loss_fn_config"),
        ("stable_reinforce", {"clip_high_threshold": [2.0, 2.0, 2.0]}, "clip_high_threshold", "not served per token"),
        ("cross_entropy", {"target_tokens": [1, 2, VOCAB]}, "target_tokens", "token 100 (at [2]) is outside of the vocabulary"),
        ("cross_entropy", {"target_tokens": [1, -100, 2]}, "target_tokens", "token -100 (at [1])"),
        ("cross_entropy", {"target_tokens": [1.0, 2.0, 3.0]}, "target_tokens", "must be int64, not float32"),
        ("cross_entropy", {"target_tokens": [1, 2]}, "target_tokens", "must have the shape [3] or [3, K], not [2]"),
        ("cross_entropy", {"target_tokens": np.ones((3, 1, 1), int)}, "target_tokens", "not [3, 1, 1]"),
        ("cross_entropy", {"target_tokens": np.ones((3, 0), int)}, "target_tokens", "1 to 128 columns, not 0"),
        ("cross_entropy", {"target_tokens": np.ones((3, MAX_TARGETS + 1), int)}, "target_tokens", "1 to 128 columns, not 129"),
        ("cross_entropy", {"target_tokens": np.ones((3, 2), int)}, "weights", "must have the shape [3, 2], not [3]"),
        ("ppo", {"target_tokens": np.ones((3, 2), int)}, "target_tokens", "Only cross_entropy takes several targets"),
    ],
)
def test_a_wrong_input_is_named(loss_fn: str, changes: dict, field: str, words: str) -> None:
    inputs = {**POLICY, **SUPERVISED, **changes}
    wrong = datum(TOKENS, **{name: value for name, value in inputs.items() if value is not None})
    error = refused([datum(TOKENS, **POLICY, weights=SUPERVISED["weights"]), wrong], loss_fn)
    assert (error.datum_index, error.field) == (1, f"loss_fn_inputs.{field}")
    assert words in str(error)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], "holds no tokens"),
        ([1, VOCAB, 2], "token 100 (at [1])"),
        ([1] * (CONTEXT + 1), "has 17 tokens; the model's context has 16"),
    ],
)
def test_wrong_tokens_are_named(tokens: list[int], words: str) -> None:
    error = refused([datum(tokens, **SUPERVISED)])
    assert (error.datum_index, error.field) == (0, "model_input")
    assert words in str(error)


def test_an_unknown_loss_is_refused_even_without_datums() -> None:
    assert refused([], "pqo").field == "loss_fn"
