"""Which memory is put on huge pages; that what it holds stays, and that a kernel without them is no error."""

import sys
from pathlib import Path

import pytest
import torch

from plait.models import huge_pages
from plait.models.huge_pages import HUGE_BYTES, anonymous_regions, use_huge_pages

MAPS = """\
55d0a0400000-55d0a0600000 r-xp 00001000 08:01 1234 /usr/bin/python3.11
55d0c0100000-55d0c4000000 rw-p 00000000 00:00 0 [heap]
7f0000001000-7f0008001000 rw-p 00000000 00:00 0
7f0010000000-7f0010800000 rw-p 00000000 00:00 0
7f0020000000-7f0030000000 rw-p 00000000 08:01 99 /some/file
7f0040000000-7f0050000000 r--p 00000000 00:00 0
7ffd00000000-7ffd08000000 rw-p 00000000 00:00 0 [stack]
""".splitlines()


def test_large_anonymous_regions_are_chosen_in_whole_pages() -> None:
    assert list(anonymous_regions(MAPS)) == [(0x55D0C0200000, 0x55D0C4000000), (0x7F0000200000, 0x7F0008000000)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_values_stay() -> None:
    weights = torch.randn(16 << 20)
    before = weights.clone()
    num_bytes = use_huge_pages()
    assert num_bytes % HUGE_BYTES == 0
    assert torch.equal(weights, before)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_kernel_that_cannot_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.ones(16 << 20)
    monkeypatch.setattr(huge_pages, "MADV_COLLAPSE", 9999)
    assert use_huge_pages() == 0
    assert float(weights.sum()) == 16 << 20


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("nothing is to be read"))
    assert use_huge_pages() == 0
