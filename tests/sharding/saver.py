"""Saves one checkpoint after another in the same folder, until it is killed. Torch-free."""

import sys
from itertools import count
from pathlib import Path

import numpy as np

from plait.sharding.checkpoint import save_shards
from plait.sharding.layout import Sharding, cut
from tests.sharding.arrays import DTYPES, flat_bytes

SHARDING = Sharding((1,), {name: cut((200, 300), "F32", None, 0, 1) for name in "abc"})


def main(folder: Path, first: int) -> None:
    """All elements of the n-th are n; each is told when it is there."""
    for number in count(first):
        shard = {name: np.full(layout.shape, number, DTYPES[layout.dtype]) for name, layout in SHARDING.tensors.items()}
        save_shards(folder, SHARDING, 0, flat_bytes(shard), lambda text: [text])
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
