"""The only place where cache keys are made.

A key names the content of a cache block completely: base weights, dtype, tenant, task, policy version, and every token from
the start of the sequence to the end of the block. Two blocks of equal keys are interchangeable; nothing else ever is.
"""

import hashlib
from collections.abc import Sequence

from plait.types.policy import PolicyVersion

Key = bytes
KEY_BYTES = 16


def root_key(base_digest: str, dtype: str, policy: PolicyVersion, adapter_digest: str) -> Key:
    """The key before the first token. Fields are length-prefixed, so no two different lists of them meet."""
    fields = (base_digest, dtype, policy.tenant, policy.task, str(policy.version), adapter_digest)
    packed = b"".join(len(field.encode()).to_bytes(4, "little") + field.encode() for field in fields)
    return hashlib.blake2b(packed, digest_size=KEY_BYTES, person=b"plait-root").digest()


def block_key(parent: Key, tokens: Sequence[int]) -> Key:
    """The key of the block that holds `tokens` right after the block `parent`."""
    packed = parent + b"".join(token.to_bytes(4, "little") for token in tokens)
    return hashlib.blake2b(packed, digest_size=KEY_BYTES, person=b"plait-block").digest()
