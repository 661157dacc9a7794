"""Contents and groups on disk: whole or absent, whatever happens in between.

- `FOLDER/contents/KEY` is a content, `FOLDER/groups/*.json` says what a group consists of. A group appears, or changes, in one
  step, after all of its contents are on the disk.
- What no group refers to when a folder is opened is removed: a crash left it.
- One process at a time holds a folder. One that outlives its killed controller is waited for.
- What no group refers to any more is kept to be written over, which takes no new blocks. Should it be under its key again after a
  crash, nothing refers to it.
"""

import logging
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import msgspec
from torch import Tensor

from plait.residency import content_file
from plait.residency.host_store import other_key
from plait.residency.parallel import for_each
from plait.residency.spares import SpareFile, SpareFiles
from plait.residency.tensor_group import TensorGroup, is_private
from plait.state.durable import TEMPORARY_PREFIX, make_folder, remove_temporaries, replace_file, sync_folder
from plait.state.tensor_file import digest_bytes
from plait.state.writer_lock import ORPHAN_GRACE_S, WriterLock
from plait.types.errors import StateError

log = logging.getLogger(__name__)
DAMAGED_PREFIX = ".damaged-"
SYNC_THREADS = 8
"""They only wait."""
MANY_FILES = 8


class _Envelope(msgspec.Struct, frozen=True):
    """A group and a digest of its bytes."""

    group: msgspec.Raw
    digest: str


class DiskStore:
    """`StateError` if another process goes on holding the folder. Threads may write and read different contents at a time.

    Unless it `lasts`, nothing is there when a folder is opened, no group is published, and nobody waits for the disk. `spares` are
    the caller's to bound.
    """

    def __init__(self, folder: Path, lasts: bool = True) -> None:
        self.lasts, self.spares = lasts, SpareFiles()
        self._contents, self._groups = folder / "contents", folder / "groups"
        make_folder(self._contents)
        make_folder(self._groups)
        self._lock = WriterLock(folder, ORPHAN_GRACE_S)
        self.groups = self._open_groups()
        """As found when the folder was opened."""
        self._remove_unreferenced()

    def _open_groups(self) -> list[TensorGroup]:
        remove_temporaries(self._groups)
        groups: list[TensorGroup] = []
        if not self.lasts:
            return groups
        for path in sorted(self._groups.glob("*.json")):
            try:
                groups.append(_decode(path.read_bytes()))
            except (OSError, ValueError) as error:
                log.warning("%s is damaged and set aside: %s", path, error)
                os.replace(path, path.with_name(f"{DAMAGED_PREFIX}{path.name}"))
        return groups

    def _remove_unreferenced(self) -> None:
        referenced = {key for group in self.groups for key in group.contents}
        for path in self._contents.iterdir():
            if path.name not in referenced:
                path.unlink()

    def has(self, key: str) -> bool:
        return (self._contents / key).exists()

    # ---- contents

    def write(self, key: str, buffer: Tensor) -> str:
        """Store a content; its key, which is new for a private one. OSError if there is no room; then nothing is left.

        It outlives a crash once it is synced and a group that refers to it is published.
        """
        spare = self.spares.take(buffer.numel())
        part = self._new_part() if spare is None else spare.path
        digest = content_file.write(part, content_file.pieces(buffer), is_private(key), is_over=spare is not None)
        try:
            return self._put(part, digest or key, buffer)
        finally:
            part.unlink(missing_ok=True)

    def _new_part(self) -> Path:
        return self._contents / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"

    def _put(self, part: Path, key: str, buffer: Tensor) -> str:
        while True:
            try:
                os.link(part, self._contents / key)
                return key
            except FileExistsError:
                if content_file.holds(self._contents / key, content_file.pieces(buffer)):
                    return key
            key = other_key(key)

    def sync(self, keys: Iterable[str]) -> None:
        """Wait until contents that were written are on the disk; for many at once, which the disk takes together."""
        if not self.lasts:
            return
        paths = [self._contents / key for key in keys]
        for_each(content_file.sync, paths, SYNC_THREADS if len(paths) >= MANY_FILES else 1)
        sync_folder(self._contents)

    def read(self, key: str, buffer: Tensor) -> None:
        content_file.read(self._contents / key, buffer, key.partition("-")[0])

    def announce(self, key: str) -> None:
        """A content is to be read soon."""
        content_file.advise(self._contents / key, "POSIX_FADV_WILLNEED")

    def holds(self, key: str, buffer: Tensor) -> bool:
        return content_file.compare(self._contents / key, buffer)

    def remove(self, key: str) -> bool:
        """Whether it is gone; an error is logged."""
        path, part = self._contents / key, self._new_part()
        try:
            num_bytes = path.stat().st_size
            if not num_bytes:
                return content_file.remove(path)
            os.rename(path, part)
        except FileNotFoundError:
            return True
        except OSError as error:
            log.warning("cannot remove %s: %s", path, error)
            return False
        self.spares.give(num_bytes, SpareFile(part))
        return True

    # ---- groups

    def publish(self, group: TensorGroup) -> None:
        """All of its contents are here: from now on, after any crash, so is the group.

        `StateError` if it cannot be written; then it is here as it was before, or not any more (`lists`).
        """
        encoded = msgspec.json.encode(group)
        content, path = msgspec.json.encode(_Envelope(msgspec.Raw(encoded), digest_bytes(encoded))), self._path(group.name)
        try:
            replace_file(path, content)
        except StateError:
            if path.exists() and path.read_bytes() == content:  # but a crash might bring back the one before
                self.withdraw(group.name)
            raise

    def lists(self, name: str) -> bool:
        return self._path(name).exists()

    def withdraw(self, name: str) -> None:
        """The group is no longer here, and its contents can be removed. `StateError` if it is still here."""
        try:
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"cannot remove {self._path(name)}: {error.strerror or error}.", "Mend the disk.") from error
        try:
            sync_folder(self._groups)
        except OSError as error:  # gone all the same, unless there is a crash before the disk hears of it
            log.warning("cannot sync %s: %s", self._groups, error)

    def _path(self, name: str) -> Path:
        return self._groups / f"{digest_bytes(name.encode())}.json"

    def close(self) -> None:
        self.spares.clear()
        self._lock.release()


def _decode(content: bytes) -> TensorGroup:
    envelope = msgspec.json.decode(content, type=_Envelope)
    if digest_bytes(bytes(envelope.group)) != envelope.digest:
        raise ValueError("its digest is another")
    return msgspec.json.decode(envelope.group, type=TensorGroup)
