"""The files of exported weights, under signed addresses that need no key."""

import asyncio
import time
from pathlib import Path
from urllib.parse import quote, urlencode

from plait.server.database import checkpoints
from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from plait.server.errors import Forbidden, ServiceError
from plait.server.tinker_path import TinkerPath
from plait.server.url_signer import UrlSigner

URL_LIFETIME_S = 3600.0
ROUTE = "/api/v1/external_weights"


class ExternalFiles:
    def __init__(self, database: Database, signer: UrlSigner) -> None:
        self._database, self._signer = database, signer

    async def urls(self, row: Checkpoint, base_url: str) -> tuple[dict[str, str], float]:
        """The address of each file, and when all end (seconds since the epoch). Raises ServiceError if `row` is no export."""
        if row.kind != "external":
            raise ServiceError(f"{row.tinker_path} is no export.", "Make one with save_weights_external.")
        expires_s = int(min(time.time() + URL_LIFETIME_S, row.expires_s or float("inf")))
        files = await asyncio.to_thread(files_in, Path(row.folder))
        return {file: f"{base_url.rstrip('/')}{self._address(row, file, expires_s)}" for file in files}, float(expires_s)

    def _address(self, row: Checkpoint, file: str, expires_s: int) -> str:
        query = urlencode({"expires": expires_s, "signature": self._signer.sign(*_signed(row, file, expires_s))})
        return f"{ROUTE}/{quote(row.model_id)}/{quote(row.name)}/{quote(file)}?{query}"

    async def open(self, model_id: str, name: str, file: str, expires_s: int, signature: str) -> Path:
        """Where the file lies. Raises Forbidden, whatever is wrong: who has no valid address learns nothing."""
        now_s, path = time.time(), str(TinkerPath(model_id, "external", name))
        row = await self._database.run(lambda session: checkpoints.get_checkpoint(session, path, None, now_s))
        is_valid = row is not None and self._signer.is_valid(signature, *_signed(row, file, expires_s))
        if row is None or not is_valid or expires_s < now_s or file not in await asyncio.to_thread(files_in, Path(row.folder)):
            raise Forbidden(
                "the address is not valid, or no longer: it ended, or its checkpoint is gone.", "Ask for the addresses again."
            )
        return Path(row.folder) / file


def files_in(folder: Path) -> list[str]:
    """Relative to the folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _signed(row: Checkpoint, file: str, expires_s: int) -> tuple[str, ...]:
    """The folder tells what was there from what is saved under the same name later."""
    return row.tinker_path, row.folder, file, str(expires_s)
