"""The adapter that a task begins from, as its run keeps it: a copy in `RUN/tasks/TASK/start`, which nothing changes any more.

The copy's files are PEFT's own, and `start.json` beside them says where they came from and what they hold.
"""

from pathlib import Path

import msgspec
import safetensors

from plait.lora.peft_config import parse_peft_config
from plait.state.durable import publish_folder, write_synced
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE, RECORD_FILE, decode_record
from plait.state.tensor_file import digest_encoded, read_bytes
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig

START_FILE = "start.json"


class StartPoint(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    """As whoever asked for it calls it."""
    digest: str
    """Of the tensors, as they are stored."""
    base_digest: str = ""
    """Of the base model that it was trained on; empty: the adapter does not tell."""


def read_shape(folder: Path) -> LoraConfig:
    """Rank, alpha and target modules of the adapter in `folder`. Raises AdapterError if there is none that can be trained."""
    path = folder / ADAPTER_CONFIG_FILE
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict)
    except (OSError, msgspec.DecodeError) as error:
        raise AdapterError(f"{path} cannot be read: {error}.", "Give a folder in PEFT format.") from error
    if not (folder / ADAPTER_FILE).is_file():
        raise AdapterError(f"{folder} has no {ADAPTER_FILE}.", "Save the adapter as safetensors, PEFT's own default.")
    return parse_peft_config(config)


def keep_start(folder: Path, target: Path, source: str) -> StartPoint:
    """Copy the adapter in `folder` to `target`, which must not exist; it appears whole or not at all.

    Raises AdapterError if the adapter is not what its own record says, StateError if the disk does not take it.
    """
    content, config = read_bytes(folder / ADAPTER_FILE), read_bytes(folder / ADAPTER_CONFIG_FILE)
    start = _describe(folder, content, source)

    def fill(temporary: Path) -> None:
        write_synced(temporary / ADAPTER_FILE, content)
        write_synced(temporary / ADAPTER_CONFIG_FILE, config)
        write_synced(temporary / START_FILE, msgspec.json.encode(start))

    publish_folder(target, fill)
    return start


def _describe(folder: Path, content: bytes, source: str) -> StartPoint:
    try:
        digest = digest_encoded(content)
    except safetensors.SafetensorError as error:
        raise AdapterError(f"{folder / ADAPTER_FILE} is damaged: {error}.", "Save or copy the adapter again.") from error
    if not (folder / RECORD_FILE).is_file():
        return StartPoint(source=source, digest=digest)
    record = decode_record(folder / RECORD_FILE)
    if record.adapter_digest != digest:
        raise AdapterError(f"{folder / ADAPTER_FILE} is damaged: its record has another digest.", "Name another version.")
    return StartPoint(source=source, digest=digest, base_digest=record.base_digest)


def read_start(folder: Path) -> StartPoint:
    """Raises AdapterError if `folder` holds no such copy."""
    try:
        return msgspec.json.decode((folder / START_FILE).read_bytes(), type=StartPoint)
    except (OSError, msgspec.DecodeError) as error:
        raise AdapterError(f"{folder / START_FILE} cannot be read: {error}.", "Start the task in a new run.") from error
