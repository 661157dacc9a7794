"""The canonical form of a group of tensors: what each is, and in which content its bytes lie."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

PRIVATE_PREFIX = "~"
"""Of keys of contents that may still change, and so have no digest: only their own group uses them."""


class StoredTensor(msgspec.Struct, frozen=True):
    """`dtype` is `float32` for `torch.float32`. Its bytes are `num_bytes` of the content from `offset_bytes` on, row-major."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    content: str
    offset_bytes: int
    num_bytes: int


class TensorGroup(msgspec.Struct, frozen=True):
    """Tensors that are moved together. Equal contents are stored once per tier, whichever groups use them.

    `contents`: key (a digest, or a private key) -> bytes. `version` counts the group's updates, or is what its owner says.
    """

    name: str
    tensors: tuple[StoredTensor, ...]
    contents: dict[str, int]
    version: int = 0

    @property
    def num_bytes(self) -> int:
        return sum(self.contents.values())

    @property
    def private_bytes(self) -> int:
        """As much as it takes once it may be written into."""
        numbers = itertools.count()
        return privatised(self, lambda: f"{PRIVATE_PREFIX}copy {next(numbers)}")[0].num_bytes

    def renamed(self, keys: Mapping[str, str]) -> "TensorGroup":
        """With other keys for some contents."""
        tensors = tuple(msgspec.structs.replace(t, content=keys.get(t.content, t.content)) for t in self.tensors)
        contents = {keys.get(key, key): num_bytes for key, num_bytes in self.contents.items()}
        return msgspec.structs.replace(self, tensors=tensors, contents=contents)


def privatised(group: TensorGroup, new_key: Callable[[], str]) -> tuple[TensorGroup, dict[str, str]]:
    """The group in contents that nobody else has and no two of its tensors share a byte of; new key -> the content it starts as.

    Tensors that are equal, such as moments that are all zero, have one content until somebody writes into them.
    """
    keys: dict[tuple[str, int], str] = {}
    seen: Counter[tuple[str, int]] = Counter()
    tensors = []
    for tensor in group.tensors:
        place = (tensor.content, tensor.offset_bytes)
        copy_number = seen[place]
        seen[place] += 1
        if is_private(tensor.content):
            tensors.append(tensor)
            continue
        if (tensor.content, copy_number) not in keys:
            keys[tensor.content, copy_number] = new_key()
        tensors.append(msgspec.structs.replace(tensor, content=keys[tensor.content, copy_number]))
    contents = {key: n for key, n in group.contents.items() if is_private(key)}
    contents |= {key: group.contents[old] for (old, _), key in keys.items()}
    return TensorGroup(group.name, tuple(tensors), contents, group.version), {key: old for (old, _), key in keys.items()}


def is_private(key: str) -> bool:
    return key.startswith(PRIVATE_PREFIX)
