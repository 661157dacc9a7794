"""One atomic record per optimizer step: adapter, optimizer moments, version, data cursor.

- A record is a folder `steps/000012` that is renamed into place whole; what a crash leaves is the previous record.
- Reading verifies: a flipped byte or a torn file is an error that names the file.
- A valid record is never written again; a damaged one is set aside under `DAMAGED_PREFIX`.

`directory` is always a task's folder of records, `RunDirectory.steps_folder(task)`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plait.state.durable import publish_folder, sync_folder, write_synced
from plait.state.step_record import StepRecord
from plait.state.tensor_file import (
    Framework,
    damaged,
    digest_bytes,
    digest_encoded,
    encode_tensors,
    read_bytes,
    read_tensors,
    read_verified,
)
from plait.types.errors import StateError

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG_FILE = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
RECORD_FILE = "record.json"
STEP_DIGITS = 6
DAMAGED_PREFIX = ".damaged-"


class _Envelope(msgspec.Struct, frozen=True):
    """`record.json`: the record and a digest of its bytes, so that a flipped digit does not pass for a data cursor."""

    record: msgspec.Raw
    digest: str


class LatestRecord(msgspec.Struct, frozen=True):
    """The newest record that can be trusted (None: there is none), and why newer ones cannot."""

    record: StepRecord | None
    damage: tuple[str, ...] = ()


def step_folder(directory: Path, step: int) -> Path:
    return directory / f"{step:0{STEP_DIGITS}d}"


def list_steps(directory: Path) -> list[int]:
    """Steps that have a record, ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal() and entry.is_dir())


def write_record(
    directory: Path,
    step: int,
    adapter_tensors: Mapping[str, Any],
    adapter_config: Mapping[str, Any],
    optimizer_tensors: Mapping[str, Any],
    record: StepRecord,
) -> StepRecord:
    """Make step `step` durable and return its record with the digests filled in, the event's too.

    Raises `StateError` when a valid record of the step exists, or when the disk does not take it; then nothing has changed.
    """
    if record.step != step:
        raise StateError(f"record of step {record.step} given for step {step}.", "Pass the step's own record.")
    files = {
        ADAPTER_FILE: encode_tensors(adapter_tensors),
        ADAPTER_CONFIG_FILE: json.dumps(adapter_config, indent=2, sort_keys=True).encode(),
        OPTIMIZER_FILE: encode_tensors(optimizer_tensors),
    }
    sealed = _with_digests(record, files)
    files[RECORD_FILE] = _encode_record(sealed)
    _make_way(directory, step)
    publish_folder(step_folder(directory, step), lambda folder: _write_files(folder, files))
    return sealed


def read_record(directory: Path, step: int) -> StepRecord:
    """The record of `step`, all of its files verified."""
    folder = step_folder(directory, step)
    record = decode_record(folder / RECORD_FILE)
    if record.step != step:
        raise damaged(folder / RECORD_FILE, f"it is the record of step {record.step}")
    read_verified(folder / ADAPTER_FILE, record.adapter_digest)
    read_verified(folder / OPTIMIZER_FILE, record.optimizer_digest)
    read_adapter_config(folder, record)
    return record


def latest_record(directory: Path) -> LatestRecord:
    """The newest record whose files are all whole; newer damaged ones are reported in `damage`."""
    damage: list[str] = []
    for step in reversed(list_steps(directory)):
        try:
            return LatestRecord(read_record(directory, step), tuple(damage))
        except StateError as error:
            damage.append(f"step {step} is not used: {error.message}")
    return LatestRecord(None, tuple(damage))


def read_adapter(directory: Path, record: StepRecord, framework: Framework = "torch") -> tuple[dict[str, Any], dict[str, Any]]:
    """The adapter's tensors and its PEFT configuration."""
    folder = step_folder(directory, record.step)
    return read_tensors(folder / ADAPTER_FILE, record.adapter_digest, framework), read_adapter_config(folder, record)


def read_optimizer(directory: Path, record: StepRecord, framework: Framework = "torch") -> dict[str, Any]:
    return read_tensors(step_folder(directory, record.step) / OPTIMIZER_FILE, record.optimizer_digest, framework)


def _with_digests(record: StepRecord, files: Mapping[str, bytes]) -> StepRecord:
    adapter_digest = digest_encoded(files[ADAPTER_FILE])
    event = record.event and msgspec.structs.replace(record.event, adapter_digest=adapter_digest)
    return msgspec.structs.replace(
        record,
        event=event,
        adapter_digest=adapter_digest,
        adapter_config_digest=digest_bytes(files[ADAPTER_CONFIG_FILE]),
        optimizer_digest=digest_encoded(files[OPTIMIZER_FILE]),
    )


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_synced(folder / name, content)


def _make_way(directory: Path, step: int) -> None:
    """Set a damaged record of the step aside; refuse when it is whole."""
    folder = step_folder(directory, step)
    if not folder.exists():
        return
    try:
        read_record(directory, step)
    except StateError:
        _set_aside(folder)
        return
    raise StateError(f"step {step} is already recorded in {folder}.", "A step is trained once: go on from the latest record.")


def _set_aside(folder: Path) -> None:
    number = 0
    while (target := folder.with_name(f"{DAMAGED_PREFIX}{folder.name}-{number}")).exists():
        number += 1
    os.rename(folder, target)
    sync_folder(folder.parent)


def _encode_record(record: StepRecord) -> bytes:
    content = msgspec.json.encode(record)
    return msgspec.json.encode(_Envelope(record=msgspec.Raw(content), digest=digest_bytes(content)))


def decode_record(path: Path) -> StepRecord:
    """What a `record.json` says. Raises `StateError` when it is missing or damaged."""
    try:
        envelope = msgspec.json.decode(read_bytes(path), type=_Envelope)
        if digest_bytes(bytes(envelope.record)) != envelope.digest:
            raise damaged(path, "its bytes do not have the digest that it states")
        return msgspec.json.decode(envelope.record, type=StepRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error


def read_adapter_config(folder: Path, record: StepRecord) -> dict[str, Any]:
    """The PEFT configuration in a record's folder, verified."""
    content = read_bytes(folder / ADAPTER_CONFIG_FILE)
    if digest_bytes(content) != record.adapter_config_digest:
        raise damaged(folder / ADAPTER_CONFIG_FILE, "its bytes do not have the digest of its record")
    return json.loads(content)
