"""A new model of a checkpoint has to be one that the operator serves now."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plait.config.server import ServerSettings
from plait.server.errors import ServiceError
from plait.server.principal import Principal
from plait.server.routes.training import load_weights
from plait.server.trained_kind import SHAPE_KEY
from plait.server.wire.models.weights import LoadWeightsRequest
from tests.server.database.rows import make_checkpoint

PATH = "tinker://s:train:0/weights/a"


@pytest.mark.parametrize(
    ("shape", "problem"),
    [({"rank": 8, SHAPE_KEY: "full"}, "holds all weights, whose training is not served"), ({"rank": 9}, "has rank 9; at most 8")],
)
def test_what_is_not_served_is_not_loaded(shape: dict[str, Any], problem: str) -> None:
    async def get(path: str, tenant_id: str) -> Any:
        return make_checkpoint(lora=shape)

    settings = ServerSettings.model_validate({"full": {"max_resident": 0}, "lora": {"max_rank": 8}})
    service: Any = SimpleNamespace(
        settings=settings, checkpoints=SimpleNamespace(get=get), sessions=SimpleNamespace(owned=lambda *_: None)
    )
    body = LoadWeightsRequest(path=PATH, optimizer=False, session_id="s", model_seq_id=1)
    with pytest.raises(ServiceError, match=problem):
        asyncio.run(load_weights(body, service, Principal("ann", "key", is_admin=False)))
