"""Seeds as hashes of names, so that no two samples share noise and none depends on order."""

import hashlib

SEED_BITS = 63


def derive_seed(*parts: str | int) -> int:
    """Hash the parts to a non-negative integer of `SEED_BITS` bits. Order and types of the parts count."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)
