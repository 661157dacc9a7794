"""Safetensors files with a digest of what they hold. Torch is imported only where torch tensors are given or asked for.

The digest is BLAKE2b (128 bits, hex) over (name, dtype, shape, bytes) of every tensor in the order of names, so it does not
depend on the library that wrote the file.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import safetensors

from plait.types.errors import StateError

Framework = Literal["torch", "numpy"]
DIGEST_BYTES = 16


def encode_tensors(tensors: Mapping[str, Any]) -> bytes:
    """Serialise torch tensors (of any device) or numpy arrays; one kind in one call."""
    if all(type(tensor).__module__.partition(".")[0] == "numpy" for tensor in tensors.values()):
        from safetensors.numpy import save

        return save(dict(tensors), metadata={"format": "pt"})
    from safetensors.torch import save as save_torch

    return save_torch({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata={"format": "pt"})


def digest_encoded(content: bytes) -> str:
    """Digest of a serialised safetensors file. Raises `safetensors.SafetensorError` when it is torn."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, tensor in sorted(safetensors.deserialize(content)):
        hasher.update(f"{name}\0{tensor['dtype']}\0{tuple(tensor['shape'])}\0".encode())
        hasher.update(tensor["data"])
    return hasher.hexdigest()


def digest_tensors(tensors: Mapping[str, Any]) -> str:
    return digest_encoded(encode_tensors(tensors))


def digest_bytes(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def read_tensors(path: Path, expected_digest: str, framework: Framework = "torch") -> dict[str, Any]:
    """Load a file whose tensors have `expected_digest`; a `StateError` names the file when they do not."""
    content = read_verified(path, expected_digest)
    if framework == "numpy":
        from safetensors.numpy import load

        return load(content)
    from safetensors.torch import load as load_torch

    return load_torch(content)


def read_verified(path: Path, expected_digest: str) -> bytes:
    """The bytes of a safetensors file whose tensors have `expected_digest`."""
    content = read_bytes(path)
    try:
        digest = digest_encoded(content)
    except safetensors.SafetensorError as error:
        raise damaged(path, str(error)) from error
    if digest != expected_digest:
        raise damaged(path, f"its digest is {digest}, not {expected_digest}")
    return content


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def damaged(path: Path, reason: str) -> StateError:
    return StateError(f"{path} is damaged: {reason}.", "An earlier step can be used instead; `plait resume` does so by itself.")
