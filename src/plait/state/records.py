"""One atomic record per optimizer step: weights, optimizer moments, version, data cursor.

- The weights are an adapter in PEFT format or, of a task that trains all of them, a model in float32 under its checkpoint's names.
- A record is a folder `steps/000012` that is renamed into place whole; what a crash leaves is the previous record.
- Reading verifies: a flipped byte or a torn file is an error that names the file.
- A valid record is never written again; a damaged one is set aside under `DAMAGED_PREFIX`.

`directory` is always a task's folder of records, `RunDirectory.steps_folder(task)`.
"""

import json
import os
from collections.abc import Callable, Mapping
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
    verify_file,
    write_tensors,
)
from plait.types.errors import StateError
from plait.types.policy import Training

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG_FILE = "adapter_config.json"
MODEL_FILE = "model.safetensors"
MODEL_CONFIG_FILE = "config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
RECORD_FILE = "record.json"
STEP_DIGITS = 6
DAMAGED_PREFIX = ".damaged-"
WEIGHT_FILES: dict[Training, tuple[str, str]] = {
    "lora": (ADAPTER_FILE, ADAPTER_CONFIG_FILE),
    "full": (MODEL_FILE, MODEL_CONFIG_FILE),
}
"""Of the weights and of their configuration."""


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


def holds_model(folder: Path) -> bool:
    """Whether a policy's folder has all weights, not an adapter."""
    return (folder / MODEL_FILE).is_file()


def weight_files(folder: Path) -> tuple[str, str]:
    """Names of a policy's files in its folder: the weights and their configuration."""
    return WEIGHT_FILES["full" if holds_model(folder) else "lora"]


def list_steps(directory: Path) -> list[int]:
    """Steps that have a record, ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal() and entry.is_dir())


def write_record(
    directory: Path,
    step: int,
    weights: Mapping[str, Any],
    config: Mapping[str, Any],
    optimizer_tensors: Mapping[str, Any],
    record: StepRecord,
) -> StepRecord:
    """Make step `step` durable and return its record with the digests filled in, the event's too.

    `weights` and `config` are of the kind that `record.training` names; a whole model's tensors are contiguous, on the CPU, and
    of torch. Raises `StateError` when a valid record of the step exists, or when the disk does not take it; then nothing has
    changed.
    """
    write = write_tensors if record.training == "full" else _write_encoded
    return publish_record(
        directory, step, config, record, lambda path, moments: (write(path, weights), write(moments, optimizer_tensors))
    )


def publish_record(
    directory: Path, step: int, config: Mapping[str, Any], record: StepRecord, write: Callable[[Path, Path], tuple[str, str]]
) -> StepRecord:
    """As `write_record`; `write` puts synced files of weights and moments at two paths, and gives their digests."""
    if record.step != step:
        raise StateError(f"record of step {record.step} given for step {step}.", "Pass the step's own record.")
    sealed: list[StepRecord] = []

    def fill(folder: Path) -> None:
        name, config_name = WEIGHT_FILES[record.training]
        config_bytes = json.dumps(config, indent=2, sort_keys=True).encode()
        write_synced(folder / config_name, config_bytes)
        digest, optimizer_digest = write(folder / name, folder / OPTIMIZER_FILE)
        sealed.append(_with_digests(record, digest, digest_bytes(config_bytes), optimizer_digest))
        write_synced(folder / RECORD_FILE, _encode_record(sealed[0]))

    _make_way(directory, step)
    publish_folder(step_folder(directory, step), fill)
    return sealed[0]


def _write_encoded(path: Path, tensors: Mapping[str, Any]) -> str:
    content = encode_tensors(tensors)
    write_synced(path, content)
    return digest_encoded(content)


def read_record(directory: Path, step: int) -> StepRecord:
    """The record of `step`, all of its files verified."""
    folder = step_folder(directory, step)
    record = decode_record(folder / RECORD_FILE)
    if record.step != step:
        raise damaged(folder / RECORD_FILE, f"it is the record of step {record.step}")
    verify = verify_file if record.training == "full" else read_verified
    verify(folder / WEIGHT_FILES[record.training][0], record.adapter_digest)
    verify(folder / OPTIMIZER_FILE, record.optimizer_digest)
    read_weights_config(folder, record)
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
    return read_tensors(folder / ADAPTER_FILE, record.adapter_digest, framework), read_weights_config(folder, record)


def read_optimizer(directory: Path, record: StepRecord, framework: Framework = "torch") -> dict[str, Any]:
    return read_tensors(step_folder(directory, record.step) / OPTIMIZER_FILE, record.optimizer_digest, framework)


def _with_digests(record: StepRecord, weights: str, config: str, optimizer: str) -> StepRecord:
    event = record.event and msgspec.structs.replace(record.event, adapter_digest=weights)
    return msgspec.structs.replace(
        record, event=event, adapter_digest=weights, adapter_config_digest=config, optimizer_digest=optimizer
    )


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


def read_weights_config(folder: Path, record: StepRecord) -> dict[str, Any]:
    """The configuration beside the weights in a record's folder, verified."""
    path = folder / WEIGHT_FILES[record.training][1]
    content = read_bytes(path)
    if digest_bytes(content) != record.adapter_config_digest:
        raise damaged(path, "its bytes do not have the digest of its record")
    return json.loads(content)
