"""What a forward_backward request says, decoded and not yet checked against a model."""

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt


class ProvenanceSpan(msgspec.Struct, frozen=True):
    """A run of tokens that claims to be [offset, offset + length) of a sequence's prompt, or of its sampled tokens."""

    kind: Literal["prompt", "sampled"]
    sequence_id: str
    offset: int
    length: int


class WireDatum(msgspec.Struct, frozen=True, eq=False):
    """One training sequence of T tokens, as it came.

    With spans, those of the input sum to T, and those of the loss inputs to the rows of `target_tokens`.
    """

    tokens: npt.NDArray[np.int32]
    """[T], the text chunks end to end."""
    inputs: dict[str, npt.NDArray[Any]]
    """Dense, float32 or int64; also those that no loss of ours reads."""
    model_input_spans: tuple[ProvenanceSpan, ...] = ()
    loss_fn_input_spans: tuple[ProvenanceSpan, ...] = ()


class ForwardBackwardCall(msgspec.Struct, frozen=True, eq=False):
    model_id: str
    seq_id: int
    loss_fn: str
    config: dict[str, float | str]
    forward_only: bool
    """Log-probabilities and loss, and no gradient."""
    datums: tuple[WireDatum, ...]
