"""A sampler never changes: asked for again it is the same one, and what is not is refused."""

import asyncio
from pathlib import Path

import pytest

from plait.server.database import tenants
from plait.server.database.database import Database
from plait.server.errors import ServiceError
from plait.server.principal import Principal
from plait.server.samplers import Samplers
from plait.server.sessions import Sessions
from plait.server.wire.models.sampling import CreateSamplingSessionRequest
from plait.server.wire.models.sessions import CreateSessionRequest

ANN = Principal("ann", "key", is_admin=False)


def test_a_number_is_not_used_again_for_another_base_model(tmp_path: Path) -> None:
    async def drive() -> None:
        database = Database.open(f"sqlite:///{tmp_path / 'plait.db'}")
        await database.run(lambda session: tenants.ensure_tenant(session, "ann"))
        sessions = Sessions(database, 60.0, lambda *_: None)
        samplers = Samplers(database, sessions, ("small", "large"))
        session_id = await sessions.create(ANN, CreateSessionRequest())

        def request(base_model: str) -> CreateSamplingSessionRequest:
            return CreateSamplingSessionRequest(session_id=session_id, sampling_session_seq_id=1, base_model=base_model)

        sampler_id = await samplers.create(ANN, request("small"))
        assert await samplers.create(ANN, request("small")) == sampler_id
        with pytest.raises(ServiceError, match="exists with another model"):
            await samplers.create(ANN, request("large"))
        assert (await samplers.get(sampler_id, "ann")).base_model == "small"
        await database.close()

    asyncio.run(drive())
