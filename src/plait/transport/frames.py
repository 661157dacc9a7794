"""The frame format of both sides: a 4-byte big-endian length, then that many bytes."""

import struct

HEADER = struct.Struct(">I")
MAX_FRAME_BYTES = 2**30
"""Messages are small, but for batches; a longer one is a mistake, or a corrupt length."""


def encode_frame(message: bytes) -> bytes:
    """Raise ValueError for a message longer than MAX_FRAME_BYTES."""
    return HEADER.pack(check_length(len(message))) + message


def check_length(num_bytes: int) -> int:
    if num_bytes > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {num_bytes} bytes is longer than the limit of {MAX_FRAME_BYTES} bytes")
    return num_bytes
