"""Certificates of policy versions for SDK clients: recorded by default, refused in strict mode."""

from dataclasses import replace
from typing import Any

import pytest
import tinker
from tinker import types

from tests.server.e2e.data import ADAM, PROMPT, reinforced, sampled, supervised, training_client, with_spans

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
STRICT: dict[str, Any] = {"user_metadata": {"policy": "strict"}}
IDS = PROMPT.to_ints()


def strict_client(server: Any) -> tinker.TrainingClient:
    return training_client(server.client_for(), **STRICT)


def on_policy(client: tinker.TrainingClient, num: int = 2) -> list[types.Datum]:
    sampler = client.save_weights_and_get_sampling_client(record_stability_info=True).result()
    return [reinforced(IDS, sequence, spans=True) for sequence in sampled(sampler, num)]


def refused(client: tinker.TrainingClient, data: list[types.Datum], words: str) -> None:
    with pytest.raises(tinker.UnprocessableEntityError, match=words):
        client.forward_backward(data, "importance_sampling").result(timeout=120)


def test_a_batch_of_the_latest_version_trains(server: Any) -> None:
    client = strict_client(server)
    for _ in range(2):
        output = client.forward_backward(on_policy(client), "importance_sampling").result()
        assert (output.metrics["staleness:max"], output.metrics["num_uncertified_tokens:sum"]) == (0, 0)
        assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0  # type: ignore[index]


def test_a_stale_batch_is_refused(server: Any) -> None:
    client = strict_client(server)
    old = on_policy(client)
    client.forward_backward(old, "importance_sampling")
    client.optim_step(ADAM)
    refused(client, old, "version")
    assert client.forward_backward(on_policy(client), "importance_sampling") is not None


def test_what_was_sampled_trains_after_a_kill_and_a_restart(own_server: Any) -> None:
    with own_server() as server:
        client = strict_client(server)
        old = on_policy(client)
        client.forward_backward(old, "importance_sampling").result(timeout=120)
        client.optim_step(ADAM).result(timeout=120)
        latest = on_policy(client)
        server.restart()
        refused(client, old, "version")
        output = client.forward_backward(latest, "importance_sampling").result(timeout=120)
        assert (output.metrics["staleness:max"], output.metrics["num_uncertified_tokens:sum"]) == (0, 0)


def test_a_batch_of_two_versions_is_refused(server: Any) -> None:
    client = strict_client(server)
    old = on_policy(client)
    client.forward_backward(old, "importance_sampling")
    client.optim_step(ADAM).result()
    refused(client, [*on_policy(client, 1), old[0]], "version")


def test_forged_spans_are_refused(server: Any) -> None:
    """Other tokens than were sampled, a sequence that never was, one of another model, more than was sampled."""
    client, other = strict_client(server), strict_client(server)
    sampler = client.save_weights_and_get_sampling_client().result()
    sequence = sampled(sampler)[0]
    honest = reinforced(IDS, sequence, spans=True)
    targets = [*honest.loss_fn_inputs["target_tokens"].to_numpy()[:-1].tolist(), (list(sequence.tokens)[-1] + 1) % 300]
    other_tokens = types.TensorData(data=targets, dtype="int64", shape=[len(targets)])
    refused(client, [replace(honest, loss_fn_inputs={**honest.loss_fn_inputs, "target_tokens": other_tokens})], "token")
    refused(client, [with_spans(honest, len(IDS), "nothing:sample:0:request:0:0", len(sequence.tokens))], "there is no sequence")
    refused(client, on_policy(other), "model|polic|another|version")


def test_without_spans_nothing_trains(server: Any) -> None:
    client = strict_client(server)
    sampler = client.save_weights_and_get_sampling_client().result()
    refused(client, [reinforced(IDS, sampled(sampler)[0])], "span")


def test_supervised_data_need_no_certificate(server: Any) -> None:
    client = strict_client(server)
    client.forward_backward([supervised()], "cross_entropy").result()
    assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0  # type: ignore[index]


def test_a_refused_batch_fails_its_step_and_nothing_else(server: Any) -> None:
    """The SDK sends the step along with the batch."""
    client = strict_client(server)
    old = on_policy(client)
    client.forward_backward(old, "importance_sampling")
    client.optim_step(ADAM).result()
    stale, optim = client.forward_backward(old, "importance_sampling"), client.optim_step(ADAM)
    with pytest.raises(tinker.UnprocessableEntityError):
        stale.result(timeout=120)
    with pytest.raises(tinker.RequestFailedError, match="optim_step"):
        optim.result(timeout=120)
    client.forward_backward(on_policy(client), "importance_sampling").result(timeout=120)
    assert client.optim_step(ADAM).result(timeout=120).metrics["grad_norm"] > 0  # type: ignore[index]


def test_a_key_can_be_strict(server: Any) -> None:
    client = training_client(server.client_for(server.tenant(strict=True).key))
    sampler = client.save_weights_and_get_sampling_client().result()
    refused(client, [reinforced(IDS, sampled(sampler)[0])], "span")


def test_by_default_staleness_is_measured(server: Any) -> None:
    client = training_client(server.client_for())
    old = on_policy(client)
    client.forward_backward(old, "importance_sampling")
    client.optim_step(ADAM).result()
    mixed = [*old, *on_policy(client)]
    metrics = client.forward_backward(mixed, "importance_sampling").result().metrics
    assert (metrics["staleness:max"], metrics["staleness:mean"], metrics["num_uncertified_tokens:sum"]) == (1, 0.5, 0)


def test_a_forged_span_is_refused_in_recorded_mode_too(server: Any) -> None:
    client = training_client(server.client_for())
    sampler = client.save_weights_and_get_sampling_client().result()
    sequence = sampled(sampler)[0]
    longer = with_spans(supervised(len(IDS) + len(sequence.tokens) - 1), len(IDS), sequence.sequence_id or "", len(sequence.tokens))
    with pytest.raises(tinker.TinkerError, match="token"):
        client.forward_backward([longer], "cross_entropy").result(timeout=120)
