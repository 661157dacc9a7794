"""From the body of a forward_backward request to a ForwardBackwardCall.

- Bounds are checked before memory is taken: the body's size, what a compressed body says that it holds, and the cells that
  sparse tensors have when dense.
- Whatever is malformed is a WireError that names the datum and the field.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from google.protobuf.message import DecodeError

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.errors import WireError
from plait.server.wire.forward_backward import ForwardBackwardCall, ProvenanceSpan, WireDatum
from plait.server.wire.tensors import decode_tensor, num_cells

MAX_BODY_BYTES = 256 * 2**20
"""Of one call, decompressed. The SDK cuts its calls at about 5 MB; only a single datum can be larger."""
MAX_CELLS = 2**26
"""Cells of all sparse tensors of a call, when dense."""
_CHUNK_KINDS = {"image": "images", "dmel": "audio", None: "nothing"}


def parse_forward_backward(body: bytes, encoding: str | None, max_bytes: int = MAX_BODY_BYTES) -> ForwardBackwardCall:
    """The call in `body`, whose Content-Encoding is `encoding`. Raises WireError."""
    try:
        request = wire.ForwardBackwardRequest.FromString(decompress(body, encoding, max_bytes))
    except DecodeError as error:
        raise WireError(f"the body is not a ForwardBackwardRequest ({error}).", "Send protobuf, as SDK 0.38 does.") from error
    for field in ("model_id", "loss_fn"):
        if not getattr(request, field):
            raise WireError("is missing.", field=field)
    if request.seq_id < 1:
        raise WireError(f"must be 1 or more, not {request.seq_id}.", field="seq_id")
    _check_cells(request)
    return ForwardBackwardCall(
        model_id=request.model_id,
        seq_id=request.seq_id,
        loss_fn=request.loss_fn,
        config=_config(request),
        forward_only=request.forward_only,
        datums=tuple(_datum(index, datum) for index, datum in enumerate(request.data)),
    )


def decompress(body: bytes, encoding: str | None, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """`body` as it was before compression. Raises WireError if it is torn, too large, or compressed in an unknown way."""
    if encoding in (None, "", "identity"):
        content = body
    elif encoding == "zstd":
        content = _decompress_zstd(body, max_bytes)
    else:
        raise WireError(f"Content-Encoding {encoding!r} is not supported.", "Send zstd or none.")
    if len(content) > max_bytes:
        raise WireError(f"the body has {len(content)} bytes; at most {max_bytes} are taken.", "Send fewer datums in a call.")
    return content


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    try:
        num_bytes = zstandard.frame_content_size(body)
        if num_bytes > max_bytes:
            raise WireError(f"the body holds {num_bytes} bytes; at most {max_bytes} are taken.", "Send fewer datums in a call.")
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=max_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(f"the body is torn, or holds more than {max_bytes} bytes ({error}).", "Compress it with zstd.") from error


def _check_cells(request: wire.ForwardBackwardRequest) -> None:
    tensors = (tensor for datum in request.data for tensor in datum.loss_fn_inputs.values())
    num = sum(num_cells(tensor) for tensor in tensors if tensor.HasField("sparse_csr"))
    if num > MAX_CELLS:
        raise WireError(f"the sparse tensors have {num} cells; at most {MAX_CELLS} are taken.", "Send fewer datums in a call.")


def _config(request: wire.ForwardBackwardRequest) -> dict[str, float | str]:
    if not request.loss_fn_config_v2:
        config: dict[str, float | str] = dict(request.loss_fn_config)
    else:
        config = {key: _config_value(key, value) for key, value in request.loss_fn_config_v2.items()}
    for key, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise WireError(f"must be a finite number, not {value}.", field=f"loss_fn_config.{key}")
    return config


def _config_value(key: str, value: wire.LossConfigValue) -> float | str:
    kind = value.WhichOneof("value")
    if kind is None:
        raise WireError("has no value.", field=f"loss_fn_config.{key}")
    return value.number if kind == "number" else value.text


def _datum(index: int, datum: wire.Datum) -> WireDatum:
    tokens = _tokens(index, datum)
    inputs = {name: _input(index, name, tensor) for name, tensor in datum.loss_fn_inputs.items()}
    model_input_spans = _spans(index, "model_input_spans", datum.model_input_spans)
    loss_fn_input_spans = _spans(index, "loss_fn_input_spans", datum.loss_fn_input_spans)
    if model_input_spans or loss_fn_input_spans:
        _check_tiling(index, "model_input_spans", model_input_spans, len(tokens))
        if (target := inputs.get("target_tokens")) is not None:
            _check_tiling(index, "loss_fn_input_spans", loss_fn_input_spans, len(target))
    return WireDatum(tokens, inputs, model_input_spans, loss_fn_input_spans)


def _tokens(index: int, datum: wire.Datum) -> npt.NDArray[np.int32]:
    parts = []
    for position, chunk in enumerate(datum.model_input):
        field, kind = f"model_input[{position}]", chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            remedy = "The models here read text only: send chunks of tokens."
            raise WireError(f"holds {_CHUNK_KINDS[kind]}.", remedy, datum_index=index, field=field)
        data = chunk.encoded_text.tokens
        if len(data) % 4:
            raise WireError(f"{len(data)} bytes do not hold whole int32 tokens.", datum_index=index, field=field)
        parts.append(np.frombuffer(data, dtype="<i4"))
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def _input(index: int, name: str, tensor: wire.Tensor) -> npt.NDArray[Any]:
    try:
        return decode_tensor(tensor)
    except WireError as error:
        raise WireError(error.message, error.remedy, datum_index=index, field=f"loss_fn_inputs.{name}") from error


def _spans(index: int, field: str, spans: Iterable[wire.ProvenanceSpan]) -> tuple[ProvenanceSpan, ...]:
    return tuple(_span(index, f"{field}[{position}]", span) for position, span in enumerate(spans))


def _span(index: int, field: str, span: wire.ProvenanceSpan) -> ProvenanceSpan:
    arm = span.WhichOneof("span")
    if arm is None:
        raise WireError("says neither prompt_tokens nor sampled_tokens.", datum_index=index, field=field)
    run = span.sampled_tokens if arm == "sampled_tokens" else span.prompt_tokens
    if not run.sequence_id or run.offset < 0 or run.length < 0:
        message = f"needs a sequence_id, offset >= 0 and length >= 0, not {run.sequence_id!r}, {run.offset} and {run.length}."
        raise WireError(message, datum_index=index, field=field)
    return ProvenanceSpan("sampled" if arm == "sampled_tokens" else "prompt", run.sequence_id, run.offset, run.length)


def _check_tiling(index: int, field: str, spans: tuple[ProvenanceSpan, ...], num_positions: int) -> None:
    if (total := sum(span.length for span in spans)) != num_positions:
        message = f"cover {total} positions, but there are {num_positions}."
        raise WireError(message, "Spans must tile their field.", datum_index=index, field=field)
