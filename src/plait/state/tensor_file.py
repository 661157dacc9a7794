"""Safetensors files with a digest of what they hold. Torch is imported only where torch tensors are given or asked for.

The digest is BLAKE2b (128 bits, hex) over (name, dtype, shape, bytes) of every tensor in the order of names, so it does not
depend on the library that wrote the file. Adapters pass through memory as bytes; the functions for whole models (`write_tensors`,
`verify_file`, `load_converted`) hold no more than one tensor beside the caller's own.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import safetensors

from plait.types.errors import StateError

if TYPE_CHECKING:
    from torch import Tensor

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
    hasher = _Hasher()
    for name, tensor in sorted(safetensors.deserialize(content)):
        hasher.add(name, tensor["dtype"], tensor["shape"], tensor["data"])
    return hasher.hexdigest()


class _Hasher:
    """Tensors must come in the order of their names."""

    def __init__(self) -> None:
        self._hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.hexdigest = self._hasher.hexdigest

    def add(self, name: str, dtype: str, shape: Iterable[int], data: Any) -> None:
        self._hasher.update(f"{name}\0{dtype}\0{tuple(shape)}\0".encode())
        self._hasher.update(data)


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
    _check_digest(path, digest, expected_digest)
    return content


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def damaged(path: Path, reason: str) -> StateError:
    return StateError(f"{path} is damaged: {reason}.", "An earlier step can be used instead; `plait resume` does so by itself.")


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> str:
    """Write a synced file straight from the memory of contiguous CPU tensors, and return its digest.

    Raises `OSError` when the disk does not take it.
    """
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from error
    path.chmod(0o644)  # The library lets only the owner read.
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return digest_file(path)


def digest_file(path: Path) -> str:
    """Of a file of tensors that numpy knows, read one by one. Raises `StateError` when it is missing or torn."""
    hasher = _Hasher()
    for name, dtype, tensor in _each(path, "numpy"):
        hasher.add(name, dtype, tensor.shape, tensor.reshape(-1).view("uint8").data)
    return hasher.hexdigest()


def verify_file(path: Path, expected_digest: str) -> None:
    """Raises a `StateError` that names the file when its tensors do not have `expected_digest`."""
    _check_digest(path, digest_file(path), expected_digest)


def load_converted(path: Path, expected_digest: str, convert: "Callable[[Tensor], Tensor]") -> "dict[str, Tensor]":
    """What `convert` makes of each tensor, which must be a copy: it is given a view of the mapped file.

    Raises a `StateError` that names the file when its tensors do not have `expected_digest`.
    """
    import torch

    hasher, converted = _Hasher(), {}
    for name, dtype, tensor in _each(path, "pt"):
        hasher.add(name, dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).numpy().data)
        converted[name] = convert(tensor)
    _check_digest(path, hasher.hexdigest(), expected_digest)
    return converted


def _each(path: Path, framework: str) -> Iterator[tuple[str, str, Any]]:
    """Name, dtype and tensor, in the order of names."""
    try:
        with safetensors.safe_open(path, framework=framework) as file:
            for name in sorted(file.keys()):
                yield name, file.get_slice(name).get_dtype(), file.get_tensor(name)
    except (safetensors.SafetensorError, OSError) as error:
        raise damaged(path, str(error)) from error


def _check_digest(path: Path, digest: str, expected_digest: str) -> None:
    if digest != expected_digest:
        raise damaged(path, f"its digest is {digest}, not {expected_digest}")
