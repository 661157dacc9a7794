"""What a stranger learns of a tenant's models: nothing, also of those that are no more."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from plait.server.database.database import Database
from plait.server.errors import Gone, NotFound
from plait.server.model_registry import ModelRegistry
from tests.server.database.rows import fill

MODEL = "s:train:0"


def test_a_model_whose_session_has_ended_is_gone_to_its_tenant_alone(tmp_path: Path) -> None:
    async def drive() -> None:
        database = Database.open(f"sqlite:///{tmp_path / 'plait.db'}")
        await database.run(fill)
        await database.run(_end)
        unused: Any = Mock()
        registry = ModelRegistry(database, unused, unused, unused, unused, {}, unused)
        with pytest.raises(Gone):
            await registry.runner(MODEL, "ann")
        with pytest.raises(NotFound) as stranger:
            await registry.runner(MODEL, "bob")
        with pytest.raises(NotFound) as unknown:
            await registry.runner("other:train:0", "bob")
        assert str(stranger.value).replace(MODEL, "") == str(unknown.value).replace("other:train:0", "")
        await database.close()

    asyncio.run(drive())


def _end(session: Any) -> None:
    from plait.server.database.models import get_model

    model = get_model(session, MODEL, "ann")
    assert model is not None
    model.state = "closed"
