"""Tensors of every kind are the same after they were bytes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.residency import canonical
from plait.residency.tensor_group import TensorGroup, is_private, privatised

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn]
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
kinds = st.dictionaries(st.text(max_size=4), st.tuples(shapes, st.sampled_from(DTYPES), st.booleans()), max_size=6)


@given(kinds)
def test_flattened_and_viewed_is_the_same(kinds: dict[str, tuple[tuple[int, ...], torch.dtype, bool]]) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, (shape, dtype, is_transposed) in kinds.items():
        tensor = torch.randint(0, 2, shape, generator=generator).to(dtype)
        tensors[name] = tensor.mT if is_transposed and tensor.ndim > 1 else tensor
    keys = {name: f"~{number}" for number, name in enumerate(["", *tensors])}
    entries, buffers = canonical.flatten(tensors, keys)
    assert sorted(entry.name for entry in entries) == sorted(tensors)
    for entry in entries:
        found = canonical.view(entry, buffers[entry.content])
        assert found.dtype == tensors[entry.name].dtype
        assert found.shape == tensors[entry.name].shape
        assert found.tolist() == tensors[entry.name].tolist()
        assert entry.offset_bytes % canonical.ALIGN_BYTES == 0


def test_large_tensors_are_not_copied() -> None:
    large = torch.zeros(canonical.OWN_CONTENT_BYTES, dtype=torch.uint8)
    _, buffers = canonical.flatten({"large": large}, {"large": "~1", "": "~0"})
    assert buffers["~1"].data_ptr() == large.data_ptr()


@given(st.lists(st.tuples(st.sampled_from("xyz~"), st.integers(0, 2)), max_size=8))
def test_private_tensors_share_no_byte(places: list[tuple[str, int]]) -> None:
    zeros = torch.zeros(1)
    entries = tuple(
        canonical._entry(f"t{number}", zeros, "~p" if content == "~" else content, 64 * place)
        for number, (content, place) in enumerate(dict.fromkeys(places) if "~" in dict(places) else places)
    )
    group = TensorGroup("g", entries, {entry.content: 192 for entry in entries})
    numbers = iter(range(99))
    private, origins = privatised(group, lambda: f"~{next(numbers)}")
    assert all(is_private(key) for key in private.contents)
    found = [(entry.content, entry.offset_bytes) for entry in private.tensors]
    assert len(set(found)) == len(found)
    assert {entry.content for entry in private.tensors} == private.contents.keys()
    for before, after in zip(entries, private.tensors, strict=True):
        assert origins.get(after.content, after.content) == before.content
