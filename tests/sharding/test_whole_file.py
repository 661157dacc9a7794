"""One file written and read by slices, against the safetensors library."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.sharding.layout import Sharding, cut
from plait.sharding.whole_file import make_file, read_slices, write_slices
from plait.types.errors import StateError
from tests.sharding.arrays import Tensors, empty_shard, flat_bytes, full_arrays, shard_of
from tests.sharding.shardings import shardings, tensors_strategy

TORCH = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64, "U8": torch.uint8}
SIGNED = {"u4": "i4", "u2": "i2", "u8": "i8", "u1": "u1"}


def as_torch(array: np.ndarray, dtype: str) -> torch.Tensor:
    signed = np.asarray(array).view(SIGNED[array.dtype.str[1:]])
    return torch.from_numpy(signed).view(TORCH[dtype])


@given(st.data(), tensors_strategy)
@settings(max_examples=20, deadline=None)
def test_ranks_write_the_librarys_bytes_and_read_no_more_than_they_want(data: st.DataObject, tensors: Tensors) -> None:
    full = full_arrays(tensors)
    saved, wanted = data.draw(shardings(tensors)), data.draw(shardings(tensors))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        make_file(path, saved.tensors)
        for rank in reversed(range(saved.num_ranks)):
            write_slices(path, saved, rank, flat_bytes(shard_of(full, saved, rank)))
        whole = {name: as_torch(array, tensors[name][1]) for name, array in full.items()}
        assert path.read_bytes() == safetensors.torch.save(whole, metadata={"format": "pt"})
        for rank in range(wanted.num_ranks):
            target, expected = empty_shard(wanted, rank), shard_of(full, wanted, rank)
            assert read_slices(path, wanted, rank, flat_bytes(target)) == wanted.shard_bytes(rank)
            assert all(np.array_equal(target[name], expected[name]) for name in expected)


def test_a_torn_file_and_one_of_another_shape_are_told(tmp_path: Path) -> None:
    sharding, path = Sharding((1,), {"a": cut((4, 3), "F32", 0, 0, 1)}), tmp_path / "file"
    make_file(path, sharding.tensors)
    other = Sharding((1,), {"a": cut((3, 4), "F32", 0, 0, 1)})
    with pytest.raises(StateError, match=r"was saved as F32 \(4, 3\)"):
        read_slices(path, other, 0, flat_bytes(empty_shard(other, 0)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError, match="bytes, not"):
        read_slices(path, sharding, 0, flat_bytes(empty_shard(sharding, 0)))
