"""Shards on disk: any sharding read under any other, and folders that are whole or as before. Ranks are threads here."""

import json
import math
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.sharding import checkpoint, shard_file
from plait.sharding.checkpoint import load_shards, read_sharding, save_shards, shard_name
from plait.sharding.layout import Sharding, cut
from plait.sharding.shard_file import ShardTensor
from plait.types.errors import StateError
from tests.sharding.arrays import Tensors, empty_shard, flat_bytes, full_arrays, shard_of
from tests.sharding.saver import SHARDING as SAVER_SHARDING
from tests.sharding.shardings import shardings, tensors_strategy

TENSORS: Tensors = {"a": ((6, 4), "F32"), "b": ((5,), "BF16"), "step": ((), "I64")}
ROWS = Sharding(
    (2,), {"a": cut((6, 4), "F32", 0, 0, 2), "b": cut((5,), "BF16", 0, 0, 2), "step": cut((), "I64", None, 0, 2)}
)  # fmt: skip


def in_threads(num_ranks: int, work: Callable[[int, Callable[[str], list[str]]], Any]) -> list[Any]:
    """Run `work(rank, gather)` for all ranks at once; what each gave, or the error it ended with."""
    texts, barrier = [""] * num_ranks, threading.Barrier(num_ranks)

    def rank_work(rank: int) -> Any:
        def gather(text: str) -> list[str]:
            texts[rank] = text
            barrier.wait(120)
            found = list(texts)
            barrier.wait(120)
            return found

        try:
            return work(rank, gather)
        except StateError as error:
            return error

    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(rank_work, range(num_ranks)))


def save_all(folder: Path, sharding: Sharding, full: dict[str, np.ndarray]) -> list[Any]:
    def save(rank: int, gather: Callable[[str], list[str]]) -> None:
        save_shards(folder, sharding, rank, flat_bytes(shard_of(full, sharding, rank)), gather, {"num_steps": 3})

    return in_threads(sharding.num_ranks, save)


@pytest.mark.parametrize("min_run_bytes", [0, 1 << 20], ids=["reads", "mapped"])
@given(data=st.data(), tensors=tensors_strategy)
@settings(max_examples=10)
def test_any_sharding_reads_any_other(min_run_bytes: int, data: st.DataObject, tensors: Tensors) -> None:
    full = full_arrays(tensors)
    saved, wanted = data.draw(shardings(tensors)), data.draw(shardings(tensors))
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as name:
        patch.setattr(shard_file, "MIN_RUN_BYTES", min_run_bytes)
        patch.setattr("os.fsync", lambda _: None)
        assert save_all(Path(name) / "saved", saved, full) == [None] * saved.num_ranks
        assert read_sharding(Path(name) / "saved").sharding == saved
        for rank in range(wanted.num_ranks):
            target, expected = empty_shard(wanted, rank), shard_of(full, wanted, rank)
            num_read = load_shards(Path(name) / "saved", wanted, rank, flat_bytes(target))
            assert all(np.array_equal(target[name], expected[name]) for name in expected)
            assert num_read == wanted.shard_bytes(rank)


def test_files_are_safetensors_and_hold_nothing_twice(tmp_path: Path) -> None:
    full = full_arrays(TENSORS)
    save_all(tmp_path / "saved", ROWS, full)
    shards = [dict(safetensors.deserialize((tmp_path / "saved" / shard_name(rank)).read_bytes())) for rank in range(2)]
    assert [{name: entry["shape"] for name, entry in shard.items()} for shard in shards] == [
        {"a": [3, 4], "b": [3], "step": []},
        {"a": [3, 4], "b": [2]},
    ]
    assert b"".join(shard["a"]["data"] for shard in shards) == full["a"].tobytes()
    assert read_sharding(tmp_path / "saved").notes == {"num_steps": 3}


@pytest.mark.parametrize("dim", [0, 1], ids=["rows", "columns"])
def test_no_full_tensor_is_rebuilt(tmp_path: Path, dim: int) -> None:
    tensors: Tensors = {"a": ((1024, 2048), "F32")}
    saved, wanted = (Sharding((n,), {"a": cut((1024, 2048), "F32", d, 0, n)}) for n, d in ((2, 0), (3, dim)))
    full = full_arrays(tensors)
    save_all(tmp_path / "saved", saved, full)
    target = empty_shard(wanted, 1)
    tracemalloc.start()
    try:
        assert load_shards(tmp_path / "saved", wanted, 1, flat_bytes(target)) == target["a"].nbytes
        assert tracemalloc.get_traced_memory()[1] < 600_000 < math.prod(tensors["a"][0])
    finally:
        tracemalloc.stop()
    assert np.array_equal(target["a"], shard_of(full, wanted, 1)["a"])


def test_what_is_read_is_what_the_system_was_asked_for(tmp_path: Path) -> None:
    """The kernel's own count of bytes read by this thread's calls, the headers and sharding.json apart."""
    tensors: Tensors = {"a": ((1024, 2048), "F32")}
    saved, wanted = (Sharding((n,), {"a": cut((1024, 2048), "F32", 0, 0, n)}) for n in (2, 3))
    save_all(tmp_path / "saved", saved, full_arrays(tensors))
    target = empty_shard(wanted, 1)
    before = calls_read_bytes()
    load_shards(tmp_path / "saved", wanted, 1, flat_bytes(target))
    assert target["a"].nbytes <= calls_read_bytes() - before < target["a"].nbytes + 8192


def calls_read_bytes() -> int:
    return int(dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())["rchar"])


@pytest.mark.parametrize("failing_rank", [0, 1])
def test_a_rank_that_cannot_write_leaves_the_former_folder(
    tmp_path: Path, failing_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = full_arrays(TENSORS)
    save_all(tmp_path / "saved", ROWS, full)
    real = checkpoint.write_shard

    def write(path: Path, tensors: dict[str, ShardTensor]) -> int:
        if path.name == shard_name(failing_rank):
            raise OSError(28, "No space left on device")
        return real(path, tensors)

    monkeypatch.setattr(checkpoint, "write_shard", write)
    other = {name: array + np.array(1, array.dtype) for name, array in full.items()}
    errors = save_all(tmp_path / "saved", ROWS, other)
    assert all("No space left" in str(error) for error in errors)
    monkeypatch.setattr(checkpoint, "write_shard", real)
    target = empty_shard(ROWS, 1)
    load_shards(tmp_path / "saved", ROWS, 1, flat_bytes(target))
    assert all(np.array_equal(target[name], shard_of(full, ROWS, 1)[name]) for name in full)
    assert save_all(tmp_path / "saved", ROWS, other) == [None, None]
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("kept", [0, 5, 40, -1], ids=["empty", "no header", "part of the header", "a byte too few"])
def test_a_torn_shard_is_named(tmp_path: Path, kept: int) -> None:
    save_all(tmp_path / "saved", ROWS, full_arrays(TENSORS))
    path = tmp_path / "saved" / shard_name(1)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StateError, match=r"shard-00001.*torn"):
        load_shards(tmp_path / "saved", ROWS, 1, flat_bytes(empty_shard(ROWS, 1)))


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all(tmp_path / "saved", ROWS, full_arrays(TENSORS))
    monkeypatch.setattr("os.preadv", lambda *_: 0)
    with pytest.raises(StateError, match=r"shard-00001.*ends before"):
        load_shards(tmp_path / "saved", ROWS, 1, flat_bytes(empty_shard(ROWS, 1)))


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, real = full_arrays(TENSORS), os.preadv
    save_all(tmp_path / "saved", ROWS, full)
    monkeypatch.setattr("os.preadv", lambda file, buffers, offset: real(file, [buffers[0][:3]], offset))
    monkeypatch.setattr(shard_file, "MIN_RUN_BYTES", 0)
    columns = Sharding((2,), {"a": cut((6, 4), "F32", 1, 0, 2)})
    target = empty_shard(columns, 1)
    assert load_shards(tmp_path / "saved", columns, 1, flat_bytes(target)) == 48
    assert np.array_equal(target["a"], full["a"][:, 2:])


def test_a_missing_or_foreign_shard_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    with pytest.raises(StateError, match=r"sharding\.json"):
        load_shards(folder, ROWS, 0, {})
    save_all(folder, ROWS, full_arrays(TENSORS))
    (folder / shard_name(0)).rename(folder / shard_name(1))
    targets = flat_bytes(empty_shard(ROWS, 1))
    with pytest.raises(StateError, match=r"shard-00001.*of another checkpoint"):
        load_shards(folder, ROWS, 1, targets)
    (folder / shard_name(1)).unlink()
    with pytest.raises(StateError, match=r"shard-00001.*cannot be read"):
        load_shards(folder, ROWS, 1, targets)
    assert json.loads((folder / "sharding.json").read_bytes())["notes"] == {"num_steps": 3}


def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    folder, newest = tmp_path / "saved", 0
    for delay_s in (0.0, 0.017, 0.041):
        command = [sys.executable, "-m", "tests.sharding.saver", str(folder), str(newest + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as saver:
            assert saver.stdout is not None
            told = [saver.stdout.readline()]
            time.sleep(delay_s)
            saver.kill()
            told += saver.stdout.readlines()
        newest = max(int(line) for line in told if line.endswith("\n"))
        target = empty_shard(SAVER_SHARDING, 0)
        load_shards(folder, SAVER_SHARDING, 0, flat_bytes(target))
        values = {int(value) for array in target.values() for value in array.flat}
        assert len(values) == 1
        assert newest <= values.pop() <= newest + 1
