"""A record is whole or absent, and nothing damaged is ever taken for good."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.state.records import (
    ADAPTER_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
    RECORD_FILE,
    latest_record,
    list_steps,
    read_adapter,
    read_optimizer,
    read_record,
    step_folder,
    write_record,
)
from plait.state.step_record import StepRecord
from plait.state.tensor_file import digest_tensors, load_converted
from plait.types.errors import StateError

Write = Callable[..., StepRecord]
ALL_FILES = (ADAPTER_FILE, "adapter_config.json", OPTIMIZER_FILE, RECORD_FILE)


class Killed(BaseException):
    """Stands for SIGKILL: no clean-up for errors runs."""


@contextmanager
def fail_at_sync(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> Iterator[None]:
    """Let the `number`-th fsync and all after it fail."""
    calls = iter(range(1, 1000))
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if next(calls) >= number:
            raise error
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


def flip_byte(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 0x15
    path.write_bytes(content)


def test_what_is_written_is_read(tmp_path: Path, write: Write, make: Any) -> None:
    sealed = write(tmp_path, 3)
    record = read_record(tmp_path, 3)
    tensors, config = read_adapter(tmp_path, record, "numpy")
    moments = read_optimizer(tmp_path, record, "numpy")
    assert record == sealed
    assert record.event is not None
    assert record.event.adapter_digest == record.adapter_digest != ""
    assert config == make.adapter_config
    for name, tensor in make.tensors(3).items():
        np.testing.assert_array_equal(tensors[name], tensor)
        np.testing.assert_array_equal(moments[f"{name}.m"], tensor * 2)


def test_torch_and_numpy_agree_on_the_digest(tmp_path: Path, write: Write, make: Any) -> None:
    from_numpy = write(tmp_path / "numpy", 1)
    tensors = {name: torch.from_numpy(tensor) for name, tensor in reversed(make.tensors(1).items())}
    transposed = {name: tensor.T.contiguous().T for name, tensor in tensors.items()}
    from_torch = write_record(tmp_path / "torch", 1, transposed, make.adapter_config, tensors, make.record(1))
    assert from_torch.adapter_digest == from_numpy.adapter_digest
    loaded, _ = read_adapter(tmp_path / "torch", from_torch)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_bfloat16_survives(tmp_path: Path, make: Any) -> None:
    tensors = {"w": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).bfloat16()}
    record = write_record(tmp_path, 1, tensors, make.adapter_config, {"step": torch.tensor(4)}, make.record(1))
    assert torch.equal(read_adapter(tmp_path, record)[0]["w"], tensors["w"])
    assert read_optimizer(tmp_path, record)["step"].item() == 4


def test_digest_tells_name_dtype_and_shape_apart(tmp_path: Path, make: Any) -> None:
    zeros = {"a": np.zeros((2, 3), np.float32)}
    variants: list[dict[str, np.ndarray]] = [
        zeros,
        {"b": zeros["a"]},
        {"a": zeros["a"].reshape(3, 2)},
        {"a": zeros["a"].astype(np.int32)},
    ]
    digests = {
        write_record(tmp_path / str(index), 1, tensors, make.adapter_config, {}, make.record(1)).adapter_digest
        for index, tensors in enumerate(variants)
    }
    assert len(digests) == len(variants)


@given(name=st.sampled_from(ALL_FILES), position=st.integers(0, 10_000))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flipped_byte_is_an_error_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, write: Write, name: str, position: int, make: Any
) -> None:
    directory = tmp_path_factory.mktemp("steps")
    sealed = write(directory, 1)
    path = step_folder(directory, 1) / name
    flip_byte(path, position)
    try:
        record = read_record(directory, 1)
    except StateError as error:
        assert str(path) in error.message  # noqa: PT017
    else:  # Only the padding and the free-form metadata of a safetensors header are without meaning.
        assert record == sealed
        np.testing.assert_equal(read_adapter(directory, record, "numpy")[0], make.tensors(1))


@pytest.mark.parametrize("name", ALL_FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_torn_file_falls_back_to_the_record_before(tmp_path: Path, write: Write, name: str, keep: float) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    path = step_folder(tmp_path, 2) / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    latest = latest_record(tmp_path)
    assert latest.record is not None
    assert latest.record.step == 1
    assert len(latest.damage) == 1
    assert "step 2" in latest.damage[0]
    assert str(path) in latest.damage[0]


def test_missing_file_falls_back_too(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    (step_folder(tmp_path, 2) / OPTIMIZER_FILE).unlink()
    latest = latest_record(tmp_path)
    assert latest.record is not None
    assert latest.record.step == 1
    assert OPTIMIZER_FILE in latest.damage[0]


def test_without_any_record(tmp_path: Path) -> None:
    assert latest_record(tmp_path / "absent").record is None
    assert latest_record(tmp_path).damage == ()


def test_folder_of_another_step_is_refused(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 1)
    step_folder(tmp_path, 1).rename(step_folder(tmp_path, 2))
    with pytest.raises(StateError, match="record of step 1"):
        read_record(tmp_path, 2)


def test_valid_record_is_never_written_again(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 1)
    with pytest.raises(StateError, match="already recorded"):
        write(tmp_path, 1, data_cursor=0)
    assert read_record(tmp_path, 1).data_cursor == 8


def test_damaged_record_is_set_aside_and_replaced(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 1)
    for _ in range(2):
        flip_byte(step_folder(tmp_path, 1) / ADAPTER_FILE, -1)
        write(tmp_path, 1)
    assert read_record(tmp_path, 1).step == 1
    assert list_steps(tmp_path) == [1]
    assert len(list(tmp_path.glob(".damaged-*"))) == 2


@pytest.mark.parametrize("number", range(1, 7))
def test_kill_at_any_sync_leaves_a_whole_record(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    write(tmp_path, 1)
    with fail_at_sync(monkeypatch, number, Killed()), pytest.raises(Killed):
        write(tmp_path, 2)
    latest = latest_record(tmp_path)
    assert latest.damage == ()
    assert latest.record is not None
    assert latest.record.step == (2 if number == 6 else 1)
    if number < 6:
        write(tmp_path, 2)
    assert read_record(tmp_path, 2).data_cursor == 16


@pytest.mark.parametrize("number", range(1, 6))
def test_full_disk_leaves_the_record_before(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    write(tmp_path, 1)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with fail_at_sync(monkeypatch, number, full), pytest.raises(StateError, match="No space left") as caught:
        write(tmp_path, 2)
    assert str(step_folder(tmp_path, 2)) in caught.value.message
    assert "make room" in caught.value.remedy
    assert [entry.name for entry in tmp_path.iterdir()] == ["000001"]
    assert read_record(tmp_path, 1).step == 1


def test_write_that_the_system_cuts_short(tmp_path: Path, write: Write) -> None:
    write(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(StateError, match="cannot write"):
            write(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["000001"]
    write(tmp_path, 2)


KILLED_WRITER = """
import sys
from pathlib import Path
from plait.state.records import write_record
from conftest import ADAPTER_CONFIG, make_record, make_tensors
for step in range(1, 100000):
    write_record(Path(sys.argv[1]), step, make_tensors(step), ADAPTER_CONFIG, make_tensors(step), make_record(step))
"""


def test_sigkill_in_the_middle_of_writing(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], cwd=Path(__file__).parent)
    deadline_s = time.monotonic() + 60
    while len(list_steps(tmp_path)) < 20 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=120)
    steps = list_steps(tmp_path)
    assert steps == list(range(1, len(steps) + 1))
    assert [read_record(tmp_path, step).data_cursor for step in steps] == [8 * step for step in steps]


def test_state_is_importable_without_torch() -> None:
    code = "import sys, plait.state.records, plait.state.recovery, plait.state.samples; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_whole_model_is_written_read_and_verified(tmp_path: Path, make: Any) -> None:
    weights = {"model.norm.weight": torch.arange(6.0), "model.embed_tokens.weight": torch.randn(5, 4)}
    moments = {name: tensor * 2 for name, tensor in weights.items()} | {"step": torch.tensor(3)}
    sealed = write_record(tmp_path, 1, weights, {"model_type": "llama"}, moments, make.record(1, training="full"))
    folder = step_folder(tmp_path, 1)
    assert {path.name for path in folder.iterdir()} == {MODEL_FILE, "config.json", OPTIMIZER_FILE, RECORD_FILE}
    assert read_record(tmp_path, 1) == sealed
    assert sealed.adapter_digest == digest_tensors(weights), "as of any file of tensors"
    found = load_converted(folder / MODEL_FILE, sealed.adapter_digest, lambda tensor: tensor.clone())
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())
    for name in (MODEL_FILE, "config.json", OPTIMIZER_FILE, RECORD_FILE):
        content = (folder / name).read_bytes()
        flip_byte(folder / name, len(content) - 3)
        with pytest.raises(StateError, match=name):
            read_record(tmp_path, 1)
        (folder / name).write_bytes(content[:-2])
        with pytest.raises(StateError, match=name):
            read_record(tmp_path, 1)
        (folder / name).write_bytes(content)
    assert latest_record(tmp_path).record == sealed


def test_a_whole_model_that_the_disk_does_not_take_leaves_the_record_before(tmp_path: Path, make: Any) -> None:
    weights, before = {"w": torch.zeros(4096)}, resource.getrlimit(resource.RLIMIT_FSIZE)
    write_record(tmp_path, 1, weights, {}, weights, make.record(1, training="full"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StateError, match="cannot write"):
            write_record(tmp_path, 2, weights, {}, weights, make.record(2, training="full"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["000001"]
