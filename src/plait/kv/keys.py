"""The only place where cache keys are made.

A key names the content of a cache block completely: base weights, dtype, tenant, task, policy version, adapter, and every token
from the start of the sequence to the end of the block. Two blocks of equal keys are interchangeable; nothing else ever is.
"""

import hashlib
import struct
from collections.abc import Sequence

from plait.types.policy import PolicyVersion

Key = bytes
KEY_BYTES = 16


def root_key(base_digest: str, dtype: str, policy: PolicyVersion, adapter_digest: str | None) -> Key:
    """The key before the first token; `adapter_digest` None is the base without an adapter.

    Fields are length-prefixed, so no two different lists of them meet.
    """
    adapter = () if adapter_digest is None else (adapter_digest,)
    fields = (base_digest, dtype, policy.tenant, policy.task, str(policy.version), *adapter)
    packed = b"".join(struct.pack("<I", len(field)) + field for field in (text.encode() for text in fields))
    return hashlib.blake2b(packed, digest_size=KEY_BYTES, person=b"plait-root").digest()


def block_key(parent: Key, tokens: Sequence[int]) -> Key:
    """The key of the block that holds `tokens` (each below 2^32) right after the block `parent`."""
    packed = parent + struct.pack(f"<{len(tokens)}I", *tokens)
    return hashlib.blake2b(packed, digest_size=KEY_BYTES, person=b"plait-block").digest()
