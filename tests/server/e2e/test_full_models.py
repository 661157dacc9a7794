"""Models that train all weights, through the SDK, on a server that holds one of them at a time, over two ranks."""

from typing import Any

import psutil
import pytest
import tinker

from tests.server.e2e.data import ADAM, PROMPT, loss, reinforced, sampled, step, training_client
from tests.server.server_process import ALIAS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
FULL = {"plait_training": "full"}


def full_client(service: Any) -> tinker.TrainingClient:
    return training_client(service, user_metadata=FULL)


def test_it_is_trained_sampled_from_saved_and_loaded(server: Any) -> None:
    service = server.client_for()
    assert any("plait.cluster.ranks.follower" in child.cmdline() for child in psutil.Process(server.pid).children(recursive=True))
    client, adapter = full_client(service), training_client(service)
    before, adapter_loss = loss(client), loss(adapter)
    assert before == pytest.approx(adapter_loss, abs=1e-5), "both start as the base"
    sampler = client.save_weights_and_get_sampling_client(record_stability_info=True).result()
    data = [reinforced(PROMPT.to_ints(), sequence, 1.0, spans=True) for sequence in sampled(sampler, num=2)]
    output = client.forward_backward(data, "importance_sampling").result()
    assert output.metrics["logprob_gap_max:max"] < 1e-3
    client.optim_step(ADAM).result()
    step(client)
    after = loss(client)
    assert after < before
    assert loss(adapter) == adapter_loss
    saved = client.save_state("mine").result().path
    named = client.create_sampling_client(client.save_weights_for_sampler("mine").result().path).result()
    old, new = (one.compute_logprobs(PROMPT).result() for one in (sampler, named))
    assert old != new
    loaded = service.create_training_client_from_state_with_optimizer(saved).result()
    assert loss(loaded) == after
    step(client)
    step(loaded)
    assert loss(loaded) == loss(client)
    client.load_state(saved).result()
    assert loss(client) == after


def test_what_it_is_is_told(server: Any) -> None:
    service = server.client_for()
    client = full_client(service)
    info = client.get_info()
    assert (info.is_lora, info.lora_rank) == (False, None)
    path = client.save_state("one").result().path
    rest = service.create_rest_client()
    weights = rest.get_weights_info_by_tinker_path(path).result()
    assert (weights.is_lora, weights.lora_rank) == (False, None)
    run = rest.get_training_run(client.model_id).result()
    assert (run.is_lora, run.lora_rank, run.user_metadata) == (False, None, FULL)
    (checkpoint,) = rest.list_checkpoints(client.model_id).result().checkpoints
    assert checkpoint.size_bytes > 1_000_000
    with server.http() as http:
        answer = http.post("/get_info", json={"model_id": client.model_id})
    assert "The rank and the layers that were asked for have no effect" in answer.json()["note"]


def test_what_cannot_be_is_refused(server: Any) -> None:
    service = server.client_for()
    with pytest.raises(tinker.TinkerError, match=r"user_metadata\.plait_training is .*some"):
        service.create_lora_training_client(ALIAS, rank=4, user_metadata={"plait_training": "some"}).result(timeout=120)
    path = training_client(service).save_state("one").result().path
    with pytest.raises(tinker.TinkerError, match=r"holds a .*lora.* model, not a .*full"):
        service.create_training_client_from_state(path, user_metadata=FULL).result(timeout=120)
    with pytest.raises(tinker.TinkerError, match="holds an adapter; this model trains all weights"):
        full_client(service).load_state(path).result(timeout=120)


def test_those_that_do_not_fit_take_turns(server: Any) -> None:
    """Gradients that wait are made anew when a model comes back onto the trainer."""
    service = server.client_for()
    clients = [full_client(service) for _ in range(3)]
    for client in clients:
        step(client)
    losses = [loss(client) for client in clients]
    assert len(set(losses)) == 1
    samplers = [client.save_weights_and_get_sampling_client().result() for client in clients]
    assert len({tuple(sampler.compute_logprobs(PROMPT).result()) for sampler in samplers}) == 1
    texts = [sampled(sampler, num=2, seed=3) for sampler in samplers]
    assert [s.tokens for s in texts[0]] == [s.tokens for s in texts[1]] == [s.tokens for s in texts[2]]
