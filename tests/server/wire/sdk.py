"""Requests as the SDK sends them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.types.forward_backward_request import ForwardBackwardRequest

from plait.server.wire.forward_backward import ForwardBackwardCall
from plait.server.wire.requests import parse_forward_backward


def datum(tokens: Sequence, spans: Mapping[str, Any] | None = None, **inputs: Any) -> types.Datum:
    """`tokens` is one text chunk or several."""
    chunks = tokens if tokens and isinstance(tokens[0], list) else [tokens]
    arrays: dict[str, Any] = {
        name: value if isinstance(value, types.TensorData) else np.asarray(value) for name, value in inputs.items()
    }
    return types.Datum(
        model_input=types.ModelInput(chunks=[types.EncodedTextChunk(tokens=chunk) for chunk in chunks]),
        loss_fn_inputs=arrays,
        **(spans or {}),
    )


def body(
    data: list[types.Datum],
    loss_fn: str = "cross_entropy",
    config: dict[str, float | str] | None = None,
    forward_only: bool = False,
    seq_id: int = 1,
) -> bytes:
    request = ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=data, loss_fn=loss_fn, loss_fn_config=config),  # type: ignore[arg-type]
        model_id="session:train:0",
        seq_id=seq_id,
    )
    message = forward_backward_request_to_proto(request)
    message.forward_only = forward_only
    return message.SerializeToString()


def call(
    data: list[types.Datum], loss_fn: str = "cross_entropy", config: dict[str, float | str] | None = None
) -> ForwardBackwardCall:
    """As the server gets it."""
    return parse_forward_backward(body(data, loss_fn, config), None)
