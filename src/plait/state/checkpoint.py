"""A policy version's files in a folder of their own, which outlives the step records: a checkpoint.

- Its files are the record's, under the same names; `optimizer.safetensors` only where the moments were asked for.
- It appears whole, takes no room while the record exists (hard links), and nothing that happens to the record changes it.
"""

import errno
import os
from pathlib import Path
from typing import Any

from plait.state.durable import replace_folder, write_synced
from plait.state.records import (
    ADAPTER_FILE,
    OPTIMIZER_FILE,
    RECORD_FILE,
    decode_record,
    read_weights_config,
    step_folder,
    weight_files,
)
from plait.state.step_record import StepRecord
from plait.state.tensor_file import Framework, read_tensors

CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
"""Another file system, one without hard links, or too many of them: the bytes are copied."""


def save_checkpoint(steps_folder: Path, step: int, folder: Path, with_optimizer: bool) -> int:
    """Put the files of a step's record at `folder`, in place of what is there; return their size in bytes.

    Raises `StateError` when the disk does not take them; then nothing has changed.
    """
    source = step_folder(steps_folder, step)
    names = [*weight_files(source), RECORD_FILE, *([OPTIMIZER_FILE] if with_optimizer else [])]
    replace_folder(folder, lambda target: _link_files(source, target, names))
    return sum((folder / name).stat().st_size for name in names)


def read_checkpoint(folder: Path) -> StepRecord:
    """The record of the version that the checkpoint holds."""
    return decode_record(folder / RECORD_FILE)


def has_optimizer(folder: Path) -> bool:
    return (folder / OPTIMIZER_FILE).is_file()


def read_checkpoint_adapter(
    folder: Path, record: StepRecord, framework: Framework = "torch"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The adapter's tensors and its PEFT configuration, verified."""
    return read_tensors(folder / ADAPTER_FILE, record.adapter_digest, framework), read_weights_config(folder, record)


def read_checkpoint_optimizer(folder: Path, record: StepRecord, framework: Framework = "torch") -> dict[str, Any]:
    return read_tensors(folder / OPTIMIZER_FILE, record.optimizer_digest, framework)


def _link_files(source: Path, target: Path, names: list[str]) -> None:
    for name in names:
        try:
            os.link(source / name, target / name)
        except OSError as error:
            if error.errno not in CANNOT_LINK:
                raise
            write_synced(target / name, (source / name).read_bytes())
