"""Slots keep what rows hold through every change of layout, within the memory granted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.engine.cache import KEY_STEP, BlockStorage, SlotCache
from plait.kv.pool import Piece
from plait.models.tiny import tiny_config

CONFIG = tiny_config()


def slot_cache(max_rows: int = 6, slot_tokens: int = 300) -> SlotCache:
    return SlotCache(CONFIG, max_rows, slot_tokens, torch.float32, torch.device("cpu"))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 150)), min_size=1, max_size=8), st.sampled_from([150, 300, 1000]))
@settings(max_examples=40, deadline=None)
def test_layout_changes_keep_what_rows_hold(layouts: list[tuple[int, int]], slot_tokens: int) -> None:
    slots = slot_cache(slot_tokens=slot_tokens)
    held: list[torch.Tensor] = []
    for num_rows, longest in layouts:
        if not slots.fits(num_rows, longest):
            continue
        slots.resize(num_rows, longest)
        assert slots.data[0, 0, :, 0].shape[:2].numel() <= slot_tokens
        assert slots.data.shape[4] >= longest
        assert slots.data[0, 0].is_contiguous()
        for index, wanted in enumerate(held[:num_rows]):
            length = min(wanted.shape[3], longest)
            assert torch.equal(slots.row(index)[:, :, :, :length], wanted[:, :, :, :length])
            assert not slots.row(index)[:, :, :, wanted.shape[3] :].any(), "zeros elsewhere"
        held = [torch.rand(CONFIG.num_layers, 2, CONFIG.num_kv_heads, longest, CONFIG.head_dim) for _ in range(num_rows)]
        for index, content in enumerate(held):
            slots.clear(index)
            slots.row(index)[:, :, :, :longest] = content


def test_memory_is_granted_once() -> None:
    slots = slot_cache()
    before = slots._memory.data_ptr()
    slots.resize(1, 10)
    slots.resize(6, 50)
    assert slots._memory.data_ptr() == before
    assert slots.data.untyped_storage().data_ptr() == before


@pytest.mark.parametrize(
    ("num_rows", "longest", "fits"), [(6, 50, True), (6, 51, False), (7, 1, False), (1, 300, True), (1, 301, False)]
)
def test_what_fits(num_rows: int, longest: int, fits: bool) -> None:
    assert slot_cache().fits(num_rows, longest) == fits


def test_slots_are_as_long_as_they_must_be() -> None:
    slots = slot_cache()
    slots.resize(2, KEY_STEP + 1)
    assert slots.data.shape[4] == 2 * KEY_STEP
    slots.resize(2, 5)
    assert slots.data.shape[4] == KEY_STEP
    slots.resize(6, 50)
    assert slots.data.shape[4] == 50, "no room for the padding"


def test_blocks_are_copied_to_their_places() -> None:
    storage = BlockStorage(CONFIG, 4, 16, torch.float32, torch.device("cpu"))
    slots = slot_cache()
    slots.resize(3, 40)
    slots.row(2).copy_(torch.rand(slots.row(2).shape))
    storage.save([Piece(3, 0, 16), Piece(1, 16, 16), Piece(0, 32, 5)], slots.row(2))
    storage.load([Piece(3, 0, 16), Piece(1, 16, 16), Piece(0, 32, 3)], slots.row(0))
    assert torch.equal(slots.row(0)[:, :, :, :35], slots.row(2)[:, :, :, :35])
    assert not slots.row(0)[:, :, :, 35:].any()
    assert not slots.row(1).any()
