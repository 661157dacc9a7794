"""The files of exported weights, under signed addresses that need no key."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlencode

from plait.server.checkpoint_files import files_in, open_file
from plait.server.checkpoints import CheckpointStore
from plait.server.database import checkpoints
from plait.server.database.tables import Checkpoint
from plait.server.errors import Forbidden, ServiceError
from plait.server.tinker_path import TinkerPath
from plait.server.url_signer import UrlSigner

URL_LIFETIME_S = 3600.0
ROUTE = "/api/v1/external_weights"


class ExternalFiles:
    def __init__(self, store: CheckpointStore, signer: UrlSigner) -> None:
        self._store, self._signer = store, signer

    async def urls(self, path: str, tenant_id: str, base_url: str) -> tuple[dict[str, str], float]:
        """The address of each file, and when all end (seconds since the epoch). Raises NotFound; ServiceError for no export."""
        row, files = await self._store.read(path, tenant_id, files_in)
        if row.kind != "external":
            raise ServiceError(f"{row.tinker_path} is no export.", "Make one with save_weights_external.")
        expires_s = int(min(time.time() + URL_LIFETIME_S, row.expires_s or float("inf")))
        return {file: f"{base_url.rstrip('/')}{self._address(row, file, expires_s)}" for file in files}, float(expires_s)

    def _address(self, row: Checkpoint, file: str, expires_s: int) -> str:
        query = urlencode({"expires": expires_s, "signature": self._signer.sign(*_signed(row, file, expires_s))})
        return f"{ROUTE}/{quote(row.model_id)}/{quote(row.name)}/{quote(file)}?{query}"

    async def open(self, model_id: str, name: str, file: str, expires_s: int, signature: str) -> BinaryIO:
        """Raises Forbidden, whatever is wrong: who has no valid address learns nothing."""
        now_s, path = time.time(), str(TinkerPath(model_id, "external", name))
        row = await self._store.database.run(lambda session: checkpoints.get_checkpoint(session, path, None, now_s))
        opened = None
        if row is not None and self._signer.is_valid(signature, *_signed(row, file, expires_s)) and expires_s >= now_s:
            with contextlib.suppress(FileNotFoundError):
                opened = await asyncio.to_thread(open_file, Path(row.folder), file)
        if opened is None:
            raise Forbidden(
                "the address is not valid, or no longer: it ended, or its checkpoint is gone.", "Ask for the addresses again."
            )
        return opened


def _signed(row: Checkpoint, file: str, expires_s: int) -> tuple[str, ...]:
    """The folder tells what was there from what is saved under the same name later."""
    return row.tinker_path, row.folder, file, str(expires_s)
