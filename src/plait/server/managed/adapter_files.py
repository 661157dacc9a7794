"""A version of a task's weights as one file to take away: its files, PEFT's or a model's, in a tar or zip."""

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Literal

from plait.client.policies import policy_ref
from plait.server.errors import NotFound
from plait.state.records import weight_files
from plait.state.rundir import RunDirectory
from plait.types.errors import StateError

Format = Literal["tar", "zip"]
MEDIA_TYPES: dict[Format, str] = {"tar": "application/x-tar", "zip": "application/zip"}
ATTEMPTS = 3
"""A running task may remove an old version while it is being packed."""


def pack_adapter(directory: RunDirectory, task: str, step: int | None, kind: Format) -> tuple[IO[bytes], int]:
    """An open temporary file, and the step that is in it: `step`, or the best by held-out score, else the latest. NotFound."""
    cause: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            ref = policy_ref(directory, task, step)
            return _pack(Path(ref.path), kind), ref.policy.version
        except (StateError, FileNotFoundError) as error:
            cause = error
    raise NotFound("adapter", f"{task}@{step if step is not None else 'latest'}") from cause


def _pack(folder: Path, kind: Format) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        if kind == "tar":
            with tarfile.open(fileobj=file, mode="w") as tar:
                for name in weight_files(folder):
                    tar.add(folder / name, arcname=name, filter=_anonymous)
        else:
            with zipfile.ZipFile(file, "w") as archive:
                for name in weight_files(folder):
                    with (folder / name).open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
                        shutil.copyfileobj(source, target)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing about the server's own users."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info
