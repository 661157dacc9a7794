"""Small tensors count as large, and folders are in memory, where waiting for the disk takes no time."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.residency import canonical, content_file
from tests.residency.audit import LARGE_BYTES

MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "OWN_CONTENT_BYTES", LARGE_BYTES)
    monkeypatch.setattr(content_file, "PIECE_BYTES", LARGE_BYTES // 2)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plait-test-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)
