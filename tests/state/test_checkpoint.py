import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plait.state import durable
from plait.state.checkpoint import (
    has_optimizer,
    read_checkpoint,
    read_checkpoint_adapter,
    read_checkpoint_optimizer,
    save_checkpoint,
)
from plait.state.durable import replace_folder, write_synced
from plait.state.records import ADAPTER_FILE, list_steps, read_adapter, read_optimizer, step_folder
from plait.state.retention import thin_records
from plait.state.step_record import StepRecord
from plait.types.errors import StateError

Write = Callable[..., StepRecord]


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)


@pytest.mark.parametrize("can_link", [True, False])
def test_a_checkpoint_has_the_records_files_and_outlives_it(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another device")

    if not can_link:
        monkeypatch.setattr(os, "link", refuse)
    records, steps, folder = [write(tmp_path, step) for step in range(4)], tmp_path, tmp_path / "checkpoints" / "first"
    adapter, optimizer = read_adapter(steps, records[1], "numpy"), read_optimizer(steps, records[1], "numpy")
    size_bytes = save_checkpoint(steps, 1, folder, with_optimizer=True)
    shares_room = (folder / ADAPTER_FILE).samefile(step_folder(steps, 1) / ADAPTER_FILE)
    thin_records(steps, 100)
    assert 1 not in list_steps(steps)
    assert shares_room is can_link
    record = read_checkpoint(folder)
    assert record == records[1]
    assert size_bytes == sum(file.stat().st_size for file in folder.iterdir())
    found, config = read_checkpoint_adapter(folder, record, "numpy")
    assert same(found, adapter[0])
    assert config == adapter[1]
    assert same(read_checkpoint_optimizer(folder, record, "numpy"), optimizer)


def test_moments_are_left_out_where_nobody_asked(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 0)
    for with_optimizer in (True, False):
        save_checkpoint(tmp_path, 0, tmp_path / "x", with_optimizer)
        assert has_optimizer(tmp_path / "x") is with_optimizer


def test_a_flipped_byte_or_a_missing_file_is_an_error(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 0)
    folder = tmp_path / "x"
    save_checkpoint(tmp_path, 0, folder, with_optimizer=False)
    content = bytearray((folder / ADAPTER_FILE).read_bytes())
    content[-1] ^= 1
    (folder / ADAPTER_FILE).unlink()
    (folder / ADAPTER_FILE).write_bytes(content)
    with pytest.raises(StateError, match="its digest is"):
        read_checkpoint_adapter(folder, read_checkpoint(folder), "numpy")
    with pytest.raises(StateError, match="nowhere"):
        read_checkpoint(tmp_path / "nowhere")


def test_a_record_that_is_not_there_leaves_the_checkpoint_before(tmp_path: Path, write: Write) -> None:
    record = write(tmp_path, 0)
    save_checkpoint(tmp_path, 0, tmp_path / "x", with_optimizer=True)
    with pytest.raises(StateError, match="cannot write"):
        save_checkpoint(tmp_path, 7, tmp_path / "x", with_optimizer=True)
    assert read_checkpoint(tmp_path / "x") == record
    assert not list(tmp_path.glob(".tmp-*"))


def fill(text: str) -> Callable[[Path], None]:
    return lambda folder: write_synced(folder / "text", text.encode())


def test_a_reader_sees_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    folder, seen, is_over = tmp_path / "x", list[str](), threading.Event()
    replace_folder(folder, fill("0"))

    def read() -> None:
        while not is_over.is_set():
            seen.append((folder / "text").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 100):
        replace_folder(folder, fill(str(number)))
    is_over.set()
    reader.join()
    assert [int(text) for text in seen] == sorted(int(text) for text in seen)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_exchange", lambda *_: False)
    for text in ("old", "new"):
        replace_folder(tmp_path / "x", fill(text))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x" / "text").read_text() == "new"
