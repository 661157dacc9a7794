"""From a call's datums to those that the trainer takes, and its answers back to the shapes that the client sent.

- T is a datum's number of tokens. `target_tokens` and `weights` are [T], or for cross_entropy [T, K]: K targets at each
  position. K columns become K datums of one prompt, which the trainer computes once.
- Inputs that no loss reads are ignored. Whatever a loss reads is checked, so that a bad number never meets the model:
  lengths, token ids, finite numbers. Errors name the datum, the field and what was expected.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from plait.server.wire.errors import WireError
from plait.server.wire.forward_backward import ForwardBackwardCall, WireDatum
from plait.server.wire.losses import CLIPPING_LOSSES, REQUIRED_INPUTS, check_loss
from plait.types.datum import Datum

MAX_TARGETS = 128
"""K at most."""

Array = npt.NDArray[Any]


class TrainingInput(msgspec.Struct, frozen=True):
    """`datums` for the trainer; `shapes[i]` is that of the call's i-th `target_tokens`, [T] or [T, K]."""

    datums: tuple[Datum, ...]
    shapes: tuple[tuple[int, ...], ...]

    def fold(self, logprobs: Sequence[bytes]) -> list[npt.NDArray[np.float32]]:
        """Of each datum of the call, its log-probabilities in its targets' shape.

        `logprobs[j]` is float32 [T] of `datums[j]`. Raises ValueError if they are not those of `datums`.
        """
        if len(logprobs) != len(self.datums):
            raise ValueError(f"{len(logprobs)} answers for {len(self.datums)} datums")
        columns = iter(logprobs)
        return [_fold(shape, columns=[next(columns) for _ in range(shape[1] if len(shape) > 1 else 1)]) for shape in self.shapes]


def to_datums(call: ForwardBackwardCall, vocab_size: int, max_context_tokens: int) -> TrainingInput:
    """What the trainer takes. Raises WireError if the loss is unknown or a datum does not fit it or the model."""
    check_loss(call.loss_fn)
    parts = [_Reader(index, datum, call.loss_fn, vocab_size) for index, datum in enumerate(call.datums)]
    datums = [reader.datums(max_context_tokens) for reader in parts]
    shapes = tuple(datum.inputs["target_tokens"].shape for datum in call.datums)
    return TrainingInput(tuple(datum for columns in datums for datum in columns), shapes)


class _Reader:
    """Reads one datum, knowing its place for errors."""

    def __init__(self, index: int, datum: WireDatum, loss_fn: str, vocab_size: int) -> None:
        self._index, self._datum, self._loss_fn, self._vocab_size = index, datum, loss_fn, vocab_size

    def datums(self, max_context_tokens: int) -> list[Datum]:
        tokens = self._tokens(max_context_tokens)
        targets = self._targets(len(tokens))
        weights = self._vector("weights", targets.shape) if self._has("weights") else None
        vectors = {name: tuple(self._vector(name, (len(tokens),)).tolist()) for name in self._vector_names()}
        shared = Datum(
            tokens=tuple(tokens.tolist()),
            target_tokens=(),
            logprobs=vectors.get("logprobs", ()),
            advantages=vectors.get("advantages", ()),
            sequence_ratio_mask=vectors.get("sequence_ratio_mask", ()),
        )
        columns_K = _columns(targets)
        weights_K = [()] * len(columns_K) if weights is None else [tuple(column.tolist()) for column in _columns(weights)]
        return [
            msgspec.structs.replace(shared, target_tokens=tuple(column.tolist()), weights=column_weights)
            for column, column_weights in zip(columns_K, weights_K, strict=True)
        ]

    def _tokens(self, max_context_tokens: int) -> Array:
        tokens = self._datum.tokens
        if not len(tokens):
            raise self._error("model_input", "holds no tokens.")
        if len(tokens) > max_context_tokens:
            message = f"has {len(tokens)} tokens; the model's context has {max_context_tokens}."
            raise self._error("model_input", message, "Cut it, or split it into several datums.")
        self._check_ids("model_input", tokens)
        return tokens

    def _targets(self, num_tokens: int) -> Array:
        targets = self._input("target_tokens")
        if targets.dtype.kind != "i":
            raise self._error("target_tokens", f"must be int64, not {targets.dtype}.")
        if targets.ndim > 1 and self._loss_fn != "cross_entropy":
            message = f"must have the shape [{num_tokens}], not {list(targets.shape)}."
            raise self._error("target_tokens", message, "Only cross_entropy takes several targets at a position.")
        if targets.ndim > 2 or len(targets) != num_tokens:
            message = f"must have the shape [{num_tokens}] or [{num_tokens}, K], not {list(targets.shape)}."
            raise self._error("target_tokens", message, "model_input has one token for each target.")
        if targets.ndim == 2 and not 1 <= targets.shape[1] <= MAX_TARGETS:
            raise self._error("target_tokens", f"must have 1 to {MAX_TARGETS} columns, not {targets.shape[1]}.")
        self._check_ids("target_tokens", targets)
        return targets

    def _vector_names(self) -> list[str]:
        """Inputs of shape [T] that the loss reads."""
        if self._loss_fn in CLIPPING_LOSSES:
            for name in ("clip_low_threshold", "clip_high_threshold"):
                if self._has(name):
                    raise self._error(name, "is not served per token.", "Put it into loss_fn_config.")
        names = [name for name in REQUIRED_INPUTS[self._loss_fn] if name != "weights"]
        if self._loss_fn == "gspo" and self._has("sequence_ratio_mask"):
            names.append("sequence_ratio_mask")
        return names

    def _vector(self, name: str, shape: tuple[int, ...]) -> Array:
        values = self._input(name)
        if values.shape != shape:
            raise self._error(name, f"must have the shape {list(shape)}, not {list(values.shape)}.", "Its targets have that shape.")
        if not (finite := np.isfinite(values)).all():
            position = [int(place) for place in np.argwhere(~finite)[0]]
            raise self._error(name, f"must be finite, not {values[tuple(position)]} (at {position}).")
        return values.astype(np.float32)

    def _input(self, name: str) -> Array:
        if name not in self._datum.inputs:
            present = ", ".join(sorted(self._datum.inputs)) or "none"
            raise self._error(name, f"is missing: loss {self._loss_fn!r} needs it.", f"Inputs that came: {present}.")
        return self._datum.inputs[name]

    def _has(self, name: str) -> bool:
        return name in self._datum.inputs or name in REQUIRED_INPUTS[self._loss_fn]

    def _check_ids(self, name: str, ids: Array) -> None:
        wrong = (ids < 0) | (ids >= self._vocab_size)
        if wrong.any():
            position = [int(place) for place in np.argwhere(wrong)[0]]
            message = f"token {ids[tuple(position)]} (at {position}) is outside of the vocabulary of {self._vocab_size}."
            raise self._error(name, message, "Use the tokenizer of the model that is trained.")

    def _error(self, name: str, message: str, remedy: str = "") -> WireError:
        field = name if name == "model_input" else f"loss_fn_inputs.{name}"
        return WireError(message, remedy, datum_index=self._index, field=field)


def _columns(array_TK: Array) -> list[Array]:
    return [array_TK] if array_TK.ndim == 1 else list(array_TK.T)


def _fold(shape: tuple[int, ...], columns: Sequence[bytes]) -> npt.NDArray[np.float32]:
    arrays = [np.frombuffer(column, dtype="<f4").astype(np.float32) for column in columns]
    if any(len(array) != shape[0] for array in arrays):
        raise ValueError(f"{[len(array) for array in arrays]} log-probabilities for targets of shape {list(shape)}")
    return arrays[0] if len(shape) == 1 else np.stack(arrays, axis=1)
