"""Sessions whose clients have gone hold nothing, and are there again when they were only cut off."""

import asyncio
from pathlib import Path

import pytest

from plait.server.database import models, tenants
from plait.server.database.database import Database
from plait.server.errors import Gone, NotFound
from plait.server.principal import Principal
from plait.server.sessions import Sessions
from plait.server.wire.models.sessions import CreateSessionRequest
from tests.server.database.rows import make_model

ANN = Principal("ann", "key", is_admin=False)
TIMEOUT_S = 0.05


def test_lost_sessions_hold_no_adapter(tmp_path: Path) -> None:
    """A model of a lost session does not count against the tenant's quota, and its state stays."""
    told: list[tuple[list[str], bool]] = []

    async def drive() -> None:
        database = Database.open(f"sqlite:///{tmp_path / 'plait.db'}")
        await database.run(lambda session: tenants.ensure_tenant(session, "ann"))
        sessions = Sessions(database, TIMEOUT_S, lambda ids, *has_ended: told.append((list(ids), *has_ended)))
        session_id = await sessions.create(ANN, CreateSessionRequest())
        await database.run(lambda session: models.add_model(session, make_model(f"{session_id}:train:0", session_id)))

        async def num_live() -> int:
            return sessions.count_live(await database.run(lambda session: models.sessions_of_live_models(session, "ann")))

        assert await num_live() == 1
        await asyncio.sleep(2 * TIMEOUT_S)
        await sessions.sweep()
        assert (told, await num_live()) == ([([session_id], False)], 0)
        sessions.heartbeat(session_id, "ann")
        assert await num_live() == 1
        with pytest.raises(NotFound):
            sessions.heartbeat(session_id, "bob")
        await sessions.finish(session_id, "ann", "success")
        assert await num_live() == 0
        with pytest.raises(Gone):
            sessions.heartbeat(session_id, "ann")
        await database.close()

    asyncio.run(drive())
