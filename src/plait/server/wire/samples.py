"""From sampled sequences and scores of a prompt to the SampleResponse that the SDK reads.

L is the prompt's length. What was not asked for is None and absent on the wire.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.tensors import encode_tensor
from plait.types.sampling import StopReason

Array = npt.NDArray[Any]

EMPTY_LOGPROB = -99999.0
"""With token id 0: a cell of a top-k table in which there is nothing."""
_STOP_REASONS = {
    StopReason.STOP_TOKEN: wire.STOP_REASON_STOP,
    StopReason.STOP_STRING: wire.STOP_REASON_STOP,
    StopReason.LENGTH: wire.STOP_REASON_LENGTH,
    StopReason.CONTEXT: wire.STOP_REASON_LENGTH,
}


class TopLogprobs(msgspec.Struct, frozen=True, eq=False):
    """The most likely tokens at each of n positions, best first. [n, k]; empty cells have id 0 and `EMPTY_LOGPROB`."""

    ids_NK: Array
    logprobs_NK: Array

    @staticmethod
    def from_bytes(ids: bytes, logprobs: bytes, k: int) -> "TopLogprobs":
        """From int32 and float32 [n, k]."""
        return TopLogprobs(np.frombuffer(ids, "<i4").reshape(-1, k), np.frombuffer(logprobs, "<f4").reshape(-1, k))


class SequenceResult(msgspec.Struct, frozen=True, eq=False):
    """One sample, with the stop token or string at its end if it has one."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stop: StopReason
    top: TopLogprobs | None = None


class TargetScores(msgspec.Struct, frozen=True, eq=False):
    """Log-probabilities of the ids that the request named, [L - 1, K], NaN where it named none.

    With `crow` and `col` they travel in that CSR layout, the request's.
    """

    logprobs: Array
    crow: Sequence[int] | None = None
    col: Sequence[int] | None = None


class PromptResult(msgspec.Struct, frozen=True, eq=False):
    """What was asked about the prompt."""

    num_tokens: int
    num_cached_tokens: int = 0
    logprobs_L: Array | None = None
    """NaN where nothing was scored, always at position 0."""
    top: TopLogprobs | None = None
    """[L, k]."""
    targets: TargetScores | None = None
    alternatives: TopLogprobs | None = None
    """Draws, [L, k] or [L - 1, k]; of [L, k] the first row is left out: nothing comes before it."""


def encode_sample_response(sequences: Sequence[SequenceResult], prompt: PromptResult) -> bytes:
    """A SampleResponse. Raises ValueError if an array does not have the length it must have, or a sequence did not finish."""
    response = wire.SampleResponse(
        sequences=[_sequence(sequence) for sequence in sequences], prompt_cache_hit_tokens=prompt.num_cached_tokens
    )
    if prompt.logprobs_L is not None:
        response.prompt_logprobs = _prompt_logprobs(prompt.logprobs_L, prompt.num_tokens)
    if prompt.top is not None:
        response.topk_prompt_logprobs.CopyFrom(_top(prompt.top, prompt.num_tokens))
    if prompt.targets is not None:
        targets = prompt.targets
        _check_length("target_prompt_logprobs", len(targets.logprobs), prompt.num_tokens - 1)
        filled = np.nan_to_num(targets.logprobs.astype(np.float32), nan=0.0, posinf=np.inf, neginf=-np.inf)
        response.target_prompt_logprobs.CopyFrom(encode_tensor(filled, targets.crow, targets.col))
    if prompt.alternatives is not None:
        response.prompt_alt_tokens.CopyFrom(_alternatives(prompt.alternatives, prompt.num_tokens))
    return response.SerializeToString(deterministic=True)


def _sequence(sequence: SequenceResult) -> wire.SampledSequence:
    if sequence.stop not in _STOP_REASONS:
        raise ValueError(f"a sequence that ended with {sequence.stop!r} is no result")
    _check_length("logprobs", len(sequence.logprobs), len(sequence.tokens))
    message = wire.SampledSequence(
        stop_reason=_STOP_REASONS[sequence.stop],
        tokens=np.asarray(sequence.tokens, dtype="<i4").tobytes(),
        logprobs=np.asarray(sequence.logprobs, dtype="<f4").tobytes(),
    )
    if sequence.top is not None:
        message.topk_sampled_logprobs.CopyFrom(_top(sequence.top, len(sequence.tokens)))
    return message


def _prompt_logprobs(logprobs_L: Array, num_tokens: int) -> bytes:
    _check_length("prompt_logprobs", len(logprobs_L), num_tokens)
    values = logprobs_L.astype("<f4")
    values[:1] = np.nan
    return values.tobytes()


def _top(top: TopLogprobs, length: int) -> wire.TopkLogprobs:
    _check_length("top-k table", len(top.ids_NK), length)
    _check_length("top-k log-probabilities", top.logprobs_NK.size, top.ids_NK.size)
    return wire.TopkLogprobs(
        token_ids=top.ids_NK.astype("<i4").tobytes(),
        logprobs=top.logprobs_NK.astype("<f4").tobytes(),
        k=top.ids_NK.shape[1],
        length=length,
    )


def _alternatives(drawn: TopLogprobs, num_tokens: int) -> wire.PromptAltTokens:
    rows = slice(len(drawn.ids_NK) - (num_tokens - 1), None) if len(drawn.ids_NK) == num_tokens else slice(None)
    ids, logprobs = drawn.ids_NK[rows], drawn.logprobs_NK[rows]
    _check_length("prompt_alt_tokens", len(ids), num_tokens - 1)
    _check_length("prompt_alt_tokens' log-probabilities", logprobs.size, ids.size)
    return wire.PromptAltTokens(tokens=encode_tensor(ids), logprobs=encode_tensor(logprobs))


def _check_length(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name}: {found} entries, not {expected}")
