"""From arrays to the binary results that the SDK reads.

- A forward_backward's outputs are read record after record, so a record holds a run of datums of one trailing shape, and the
  order of the datums stays.
- Each metric's key is `name:reduction` with exactly one colon: the SDK combines the chunks of a call by it. `loss:sum` is
  always there.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from plait.server.wire import tinker_wire_pb2 as wire

OUTPUT_TYPE = "ArrayRecord"
REDUCTIONS = frozenset({"mean", "sum", "min", "max", "slack", "hash2", "unique"})


def encode_forward_backward_output(logprobs: Sequence[npt.NDArray[np.float32]], metrics: Mapping[str, float]) -> bytes:
    """A ForwardBackwardOutput with each datum's log-probabilities, [T] or [T, K].

    `metrics` must hold `loss`; a key without a reduction is a sum. Raises ValueError on an unknown reduction.
    """
    output = wire.ForwardBackwardOutput(loss_fn_output_type=OUTPUT_TYPE, metrics=reduced_metrics(metrics))
    for trailing_shape, arrays in groupby(logprobs, key=lambda array: array.shape[1:]):
        output.loss_fn_outputs.append(_record(list(arrays), trailing_shape))
    return output.SerializeToString(deterministic=True)


def reduced_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """`metrics` with a reduction in each key. Raises ValueError if one is unknown or `loss:sum` is missing."""
    named = {key if ":" in key else f"{key}:sum": value for key, value in metrics.items()}
    if wrong := [key for key in named if key.count(":") != 1 or key.split(":")[1] not in REDUCTIONS]:
        raise ValueError(f"metrics {wrong} must be name:reduction, of {', '.join(sorted(REDUCTIONS))}")
    if "loss:sum" not in named:
        raise ValueError(f"metric 'loss' is missing among {sorted(metrics)}")
    return named


def _record(arrays: list[npt.NDArray[np.float32]], trailing_shape: tuple[int, ...]) -> wire.ArrayRecord:
    offsets = np.cumsum([0, *(array.size * 4 for array in arrays)])
    tensor = wire.BatchedTensor(
        data=b"".join(array.astype("<f4").tobytes() for array in arrays),
        offsets=offsets.astype("<i8").tobytes(),
        dtype=wire.DTYPE_FLOAT32,
        trailing_shape=trailing_shape,
    )
    return wire.ArrayRecord(type_tag=OUTPUT_TYPE, fields={"logprobs": tensor}, num_datums=len(arrays))
