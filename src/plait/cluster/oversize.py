"""Batches that are too long for one message to a worker. Torch-free.

Sent all the same one would end whatever writes to the worker, and everybody would wait for ever: the call fails alone instead.
"""

from plait.cluster.messages import FromWorker, JobFailed, ToWorker, Update, to_worker
from plait.cluster.model_messages import CallFailed, ForwardBackward
from plait.transport.frames import MAX_FRAME_BYTES

MARGIN_BYTES = 64 * 1024
"""For what is put around a message on its way."""
DATUM_BYTES, TOKEN_BYTES = 1024, 64
"""More than a datum takes, its positions apart, and each of these."""


def refused(message: ToWorker) -> FromWorker | None:
    """The answer to a batch that is too long; None: it is not. Only what may be too long is measured."""
    if not isinstance(message, Update | ForwardBackward):
        return None
    most_bytes = MAX_FRAME_BYTES - MARGIN_BYTES
    if sum(DATUM_BYTES + TOKEN_BYTES * len(datum.tokens) for datum in message.datums) <= most_bytes:
        return None
    num_bytes = len(to_worker.encode(message))
    if num_bytes <= most_bytes:
        return None
    error = f"{len(message.datums)} datums take {num_bytes} bytes; a call takes at most {most_bytes}. Train fewer at a time."
    if isinstance(message, Update):
        return JobFailed(message.task, error)
    return CallFailed(message.model_id, message.seq_id, error, is_user_error=True)
