"""What the policy said: the trajectories of a step, as JSON lines, for people and for `plait show`.

A file appears whole. It is written before its step is committed, so a file of an uncommitted step may be overwritten.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from plait.state.durable import replace_file
from plait.types.errors import StateError
from plait.types.trajectory import Trajectory


class SampleRecord(msgspec.Struct, frozen=True):
    """One trajectory with its texts. `answer_texts[i]` was sampled in turn i; `feedback_texts[i]` is what came back after it."""

    task: str
    step: int
    trajectory: Trajectory
    prompt_text: str
    answer_texts: tuple[str, ...]
    feedback_texts: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SampleRecord).decode


def write_samples(path: Path, samples: Iterable[SampleRecord]) -> None:
    """Put the samples at `path`, replacing what is there."""
    replace_file(path, b"".join(_encode(sample) + b"\n" for sample in samples))


def read_samples(path: Path) -> list[SampleRecord]:
    """All samples of the file; a `StateError` names the file, and the line that cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}.", "`plait status` names the steps that exist.") from error
    return [_decode_line(path, number, line) for number, line in enumerate(lines, 1)]


def _decode_line(path: Path, number: int, line: bytes) -> SampleRecord:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"{path}, line {number}, is not a sample: {error}.", "The file is damaged; other steps can be shown."
        ) from error
