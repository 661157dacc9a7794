"""The rest of the SDK's ServiceClient, against a real server."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
import tinker
import torch
from tinker import types

from tests.server.e2e.data import ADAM, PROMPT, loss, step, supervised, training_client
from tests.server.e2e.wire import Wire
from tests.server.server_process import ALIAS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_capabilities_name_the_model_and_warn_of_its_alias(server: Any) -> None:
    models = server.client_for().get_server_capabilities().supported_models
    assert [model.model_name for model in models] == list(server.models)
    with server.http() as http:
        warnings = [model["warning"] for model in http.get("/get_server_capabilities").json()["supported_models"]]
    assert warnings[0] is None
    assert server.models[0] in warnings[1]


def test_a_finished_session_is_gone(server: Any) -> None:
    service = server.client_for()
    client = training_client(service)
    step(client)
    path = client.save_state("kept").result().path
    kept = loss(client)
    session_id = client.holder.get_session_id()
    service.close("success", detail="done").result()
    with server.http() as http:
        assert http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410
        assert http.post(f"/sessions/{session_id}/finish", json={"reason": {"type": "errored"}}).status_code == 204
        again = {"session_id": session_id, "model_seq_id": 5, "base_model": ALIAS}
        assert http.post("/create_model", json=again).status_code in (404, 410)
        call = {"model_id": client.model_id, "seq_id": 99, "adam_params": {}}
        assert http.post("/optim_step", json=call).status_code == 410
    assert loss(server.client_for().create_training_client_from_state(path).result()) == kept


def test_work_in_flight_when_a_session_finishes_ends(server: Any) -> None:
    wire = Wire(server)
    model_id = wire.model()
    made = [wire.forward_backward(model_id, seq_id, *[supervised(200)] * 16)[1]["request_id"] for seq_id in (1, 2)]
    assert wire.http.post(f"/sessions/{wire.session_id}/finish", json={"reason": {"type": "interrupted"}}).status_code == 204
    assert all(wire.result(request_id) for request_id in made)
    time.sleep(0.2)
    assert wire.optim_step(model_id, 3)[0] == 410


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_model": "Qwen/Qwen3-9B"}, "not served"),
        ({"rank": 1000}, "rank"),
        ({"train_mlp": False, "train_attn": False, "train_unembed": False}, "train_"),
    ],
)
def test_a_model_that_cannot_be_is_refused_at_once(server: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((tinker.APIStatusError, ValueError, AssertionError), match=words):
        server.client_for().create_lora_training_client(**({"base_model": ALIAS, "rank": 4} | changes)).result(timeout=120)


def test_a_wrong_key_is_refused_at_once(server: Any) -> None:
    start_s = time.monotonic()
    with pytest.raises(tinker.AuthenticationError):
        training_client(server.client_for("tml-0123456789ab-wrong"))
    assert time.monotonic() - start_s < 60


def test_seeds_and_layers_of_adapters(server: Any) -> None:
    service = server.client_for()
    one, same, other = (training_client(service, seed=seed) for seed in (1, 1, 2))
    attention = training_client(service, train_mlp=False, train_unembed=False)
    assert loss(one) == loss(same) == loss(other)  # An adapter begins as nothing.
    assert step(one) == step(same) != step(other)
    assert step(attention) != step(one)


def test_a_traced_custom_loss(server: Any) -> None:
    def squares(logprobs: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        loss = (logprobs * logprobs * weights).sum()
        return loss, {"custom/loss:sum": loss}

    service = server.client_for()
    handle = service.create_custom_loss(squares, {"logprobs": 1, "weights": 1}).result()
    client = training_client(service)
    output = client.forward_backward_custom([supervised()], handle).result()
    known = client.forward([supervised()], "cross_entropy").result()
    expected = float(known.loss_fn_outputs[0]["logprobs"].to_torch().square().sum())
    assert output.metrics["loss:sum"] == pytest.approx(expected, rel=1e-4)
    assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0  # type: ignore[index]


def test_weights_are_copied(server: Any) -> None:
    service = server.client_for(project_id="p")
    client = training_client(service)
    step(client)
    path = client.save_state("kept").result().path
    copied = service.copy_weights(path).result()
    assert copied != path
    assert loss(service.create_training_client_from_state(copied).result()) == loss(client)


def test_many_futures_of_one_client_resolve_in_any_order(server: Any) -> None:
    client = training_client(server.client_for())
    futures: list[Any] = []
    for number in range(5):
        futures.append(client.forward_backward([supervised(start=number)], "cross_entropy"))
        futures.append(client.optim_step(types.AdamParams(learning_rate=1e-3)))
    sampler = client.save_weights_and_get_sampling_client().result()
    assert all(future.result() for future in reversed(futures))
    assert sampler.compute_logprobs(PROMPT).result()
