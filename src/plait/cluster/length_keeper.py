"""Expected lengths of prompts, kept in a file from one start of a run or server to the next.

- The file is written whole (`state.durable`), `SAVE_S` after something was learnt and at the end.
- Lengths guide scheduling alone, so a file that cannot be read or written is no error: a warning says so.
"""

import asyncio
import logging
from pathlib import Path

from plait.rollout.length_estimates import LengthHistory
from plait.rollout.length_record import Lengths, decode_lengths, encode_lengths, restore, snapshot
from plait.state.durable import replace_file
from plait.types.errors import StateError

SAVE_S = 30.0

log = logging.getLogger("plait.cluster")


class LengthKeeper:
    """`load` before anything is generated, `changed` after results, `close` at the end; all in one event loop."""

    def __init__(self, path: Path, history: LengthHistory) -> None:
        self.path, self.history = path, history
        self._num_saved = history.num_changes
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def load(self) -> None:
        try:
            restore(self.history, decode_lengths(self.path.read_bytes()))
        except FileNotFoundError:
            return  # Nothing was learnt yet.
        except (OSError, ValueError) as error:
            log.warning("expected lengths in %s are not used: %s", self.path, error)

    @property
    def _has_news(self) -> bool:
        return self.history.num_changes != self._num_saved

    def changed(self) -> None:
        """The history may have learnt something."""
        if self._timer is None and self._has_news:
            self._timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_soon)

    def _save_soon(self) -> None:
        self._timer = None
        if self._saving is None or self._saving.done():  # Else the next change comes to it.
            self._saving = asyncio.create_task(self._save())

    async def _save(self) -> None:
        lengths, self._num_saved = snapshot(self.history), self.history.num_changes
        await asyncio.to_thread(self._write, lengths)

    def _write(self, lengths: list[Lengths]) -> None:
        try:
            replace_file(self.path, encode_lengths(lengths))
        except StateError as error:
            log.warning("expected lengths are not kept: %s", error.message)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            await self._saving
        if self._has_news:
            await self._save()


def lengths_file(kv_folder: Path) -> Path:
    """Of the base model whose cache has this folder."""
    return kv_folder.with_name(f"{kv_folder.name}-lengths.msgpack")
