"""A tenant with a trained model and a checkpoint of each kind, and the SDK's clients for it."""

from typing import Any, NamedTuple

import tinker
from tinker import types

from tests.server.server_process import ServerProcess


class Owner(NamedTuple):
    tenant_id: str
    key: str
    session_id: str
    run_id: str
    training: str
    sampler: str
    external: str
    """tinker:// paths."""


def rest(server: ServerProcess, key: str) -> tinker.RestClient:
    return tinker.RestClient(base_url=server.url, api_key=key)


def admin(server: ServerProcess, key: str) -> tinker.AdminClient:
    return tinker.AdminClient(base_url=server.url, api_key=key)


def make_datum() -> types.Datum:
    tokens = list(range(40, 52))
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],  # type: ignore[dict-item]
            "weights": [1.0] * (len(tokens) - 1),  # type: ignore[dict-item]
        },
    )


def train(server: ServerProcess, key: str, **metadata: Any) -> tinker.TrainingClient:
    """A model of rank 4 after one step."""
    client = server.client_for(key, user_metadata={"purpose": "test"}, project_id="first", display_name="Rest routes")
    model = client.create_lora_training_client(server.models[0], rank=4, train_mlp=False, user_metadata=metadata).result()
    model.forward_backward([make_datum()], "cross_entropy").result()
    model.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    return model


def make_owner(server: ServerProcess, role: str = "admin") -> Owner:
    tenant = server.tenant(role=role)
    model = train(server, tenant.key, renderer_name="role_colon")
    paths = (
        model.save_state("first", user_metadata={"step": "1"}).result().path,
        model.save_weights_for_sampler("first").result().path,
        model.save_weights_external("first").result().path,
    )
    run_id = model.model_id
    return Owner(tenant.tenant_id, tenant.key, run_id.partition(":")[0], run_id, *paths)
