"""The weights of a base as groups of the state manager: a part for each layer, one at a time on the device."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from plait.residency.manager import StateManager

BASE = "base "
"""With its digest, the name of a base."""
EMBEDDING = "embed_tokens"
"""Decoders compute with the very tensor: it stays while they are on the device."""


def part_of(base: str, name: str) -> str:
    """The group of a base that has the tensor `name`."""
    first, *rest = name.split(".")
    return f"{base}/{first}.{rest[0]}" if first == "layers" else f"{base}/{first}"


class BaseWeights(Mapping[str, Tensor]):
    """A base's tensors, one part at a time on the device; `close` lets go of the last."""

    def __init__(self, memory: StateManager, base: str, parts: Sequence[str]) -> None:
        """`parts`: the groups of the memory that have them."""
        self._memory, self._base, self._part = memory, base, ""
        self._names = [entry.name for part in parts for entry in memory.group(part).tensors]
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        part = part_of(self._base, name)
        if part != self._part:
            if part not in self._memory:
                raise KeyError(name)
            self.close()
            self._tensors, self._part = self._memory.acquire(part), part
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def close(self) -> None:
        if self._part:
            self._memory.release(self._part)
        self._part = ""
