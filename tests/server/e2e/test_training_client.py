"""Every method of the SDK's TrainingClient, against a real server."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from tinker import types

from tests.server.e2e.data import (
    ADAM,
    PROMPT,
    datum,
    logprobs_of,
    loss,
    reinforced,
    sampled,
    step,
    supervised,
    tokens,
    training_client,
)
from tests.server.server_process import ALIAS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_trains_and_the_loss_falls(server: Any) -> None:
    client = training_client(server.client_for())
    before = client.forward_backward([supervised()], "cross_entropy").result()
    metrics = client.optim_step(ADAM).result().metrics
    after = client.forward_backward([supervised()], "cross_entropy").result()
    assert [array.shape for array in logprobs_of(before)] == [(8,)]
    assert after.metrics["loss:sum"] < before.metrics["loss:sum"]
    assert before.metrics["loss:sum"] == pytest.approx(-float(logprobs_of(before)[0].sum()), rel=1e-5)
    assert metrics is not None
    assert metrics["grad_norm"] > 0


def test_forward_leaves_no_gradient(server: Any) -> None:
    client = training_client(server.client_for())
    before = loss(client)
    client.forward([supervised()], "cross_entropy")
    client.optim_step(ADAM).result()
    assert loss(client) == before


@pytest.mark.parametrize(
    ("loss_fn", "config"),
    [
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("cispo", None),
        ("dro", {"beta": 0.1}),
        ("gspo", None),
        ("stable_reinforce", {"kl_coeff": 0.05}),
    ],
)
def test_every_loss_of_sampled_tokens(server: Any, loss_fn: Any, config: dict[str, float] | None) -> None:
    client = training_client(server.client_for())
    sampler = client.save_weights_and_get_sampling_client(record_stability_info=True).result()
    sequences = sampled(sampler, num=3)
    data = [
        reinforced(PROMPT.to_ints(), s, advantage, spans=True) for s, advantage in zip(sequences, (1.0, -0.5, 2.0), strict=True)
    ]
    output = client.forward_backward(data, loss_fn, config).result()
    assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0  # type: ignore[index]
    expected = 6 * (1.0 - 0.5 + 2.0)  # On-policy every ratio is 1.
    if loss_fn in ("importance_sampling", "ppo", "gspo"):
        assert output.metrics["loss:sum"] == pytest.approx(-expected, abs=1e-3)
    assert output.metrics["logprob_gap_max:max"] < 1e-3
    assert output.metrics["staleness:max"] == 0
    trained = [array[-6:] for array in logprobs_of(output)]
    np.testing.assert_allclose(trained, [s.logprobs or [] for s in sequences], atol=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_several_targets_at_a_position(server: Any, sparse: bool) -> None:
    client = training_client(server.client_for())
    targets = torch.tensor([[10, 11], [12, 0], [14, 15]])
    weights = torch.tensor([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]])
    make = types.TensorData.from_torch_sparse if sparse else types.TensorData.from_torch
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([5, 6, 7]), loss_fn_inputs={"target_tokens": make(targets), "weights": make(weights)}
    )
    output = client.forward([datum], "cross_entropy").result()
    each = [
        client.forward(
            [types.Datum(model_input=types.ModelInput.from_ints([5, 6, 7]),
                         loss_fn_inputs={"target_tokens": column.tolist(), "weights": factor.tolist()})], "cross_entropy",
        ).result()
        for column, factor in zip(targets.T, weights.T, strict=True)
    ]  # fmt: skip
    assert output.metrics["loss:sum"] == pytest.approx(sum(one.metrics["loss:sum"] for one in each), rel=1e-5)
    assert logprobs_of(output)[0].shape == (3, 2)


def test_custom_loss_has_the_gradient_of_its_definition(server: Any) -> None:
    """Squared log-probabilities: the server computes it as cross_entropy with weights of either sign."""

    def squares(data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        return sum((row.square().sum() for row in logprobs), torch.tensor(0.0)), {"rows": float(len(logprobs))}

    client = training_client(server.client_for())
    data = [supervised(8), supervised(3, start=50)]
    known = logprobs_of(client.forward(data, "cross_entropy").result())
    output = client.forward_backward_custom(data, squares).result()
    norm = client.optim_step(ADAM).result().metrics["grad_norm"]  # type: ignore[index]
    assert output.metrics["loss:sum"] == pytest.approx(sum(float((row**2).sum()) for row in known), rel=1e-4)
    assert output.metrics["rows"] == 2
    other = training_client(server.client_for())
    by_hand = [supervised(len(row), start, weights=(-2 * row).tolist()) for row, start in zip(known, (5, 50), strict=True)]
    assert step(other, *by_hand)["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_custom_loss_that_fails_on_the_client_hangs_nothing(server: Any) -> None:
    def fails(data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        raise ZeroDivisionError("of the test")

    client = training_client(server.client_for())
    with pytest.raises(ZeroDivisionError):
        client.forward_backward_custom([supervised()], fails).result(timeout=120)
    with pytest.raises(Exception, match="poisoned"):
        client.optim_step(ADAM).result(timeout=120)


def test_ragged_data_come_back_as_they_went(server: Any) -> None:
    client = training_client(server.client_for())
    data = [supervised(3), supervised(50, start=11), supervised(7, start=30)]
    together = logprobs_of(client.forward(data, "cross_entropy").result())
    alone = [logprobs_of(client.forward([datum], "cross_entropy").result())[0] for datum in data]
    assert [len(row) for row in together] == [3, 50, 7]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_more_data_than_a_chunk_holds(server: Any) -> None:
    """The SDK cuts after 1024: the chunks arrive together, the first one last."""
    client = training_client(server.client_for())
    output = client.forward_backward([supervised(2, start=n % 97) for n in range(2050)], "cross_entropy").result()
    client.optim_step(ADAM).result()
    rows = logprobs_of(output)
    assert len(rows) == 2050
    assert output.metrics["loss:sum"] == pytest.approx(-sum(float(row.sum()) for row in rows), rel=1e-4)
    assert output.metrics["num_tokens:sum"] == 4100


@pytest.mark.parametrize(
    "adam",
    [
        types.AdamParams(learning_rate=0.0),
        types.AdamParams(learning_rate=1e-3, eps=0.0),
        types.AdamParams(learning_rate=1e-3, grad_clip_norm=0.1, weight_decay=0.1, beta1=0.0, beta2=0.5),
    ],
)
def test_every_adam_that_the_sdk_allows(server: Any, adam: types.AdamParams) -> None:
    client = training_client(server.client_for())
    before = loss(client)
    assert step(client, adam=adam)["grad_norm"] > 0
    assert step(client, adam=adam)["grad_norm"] > 0
    after = loss(client)
    assert math.isfinite(after)
    assert (after == before) == (adam.learning_rate == 0)


def test_state_is_saved_and_loaded(server: Any) -> None:
    service = server.client_for()
    client = training_client(service)
    step(client)
    path = client.save_state("kept", ttl_seconds=7200, user_metadata={"a": "b"}).result().path
    assert path == f"tinker://{client.model_id}/weights/kept"
    kept = loss(client)
    continued = step(client)
    whole = service.create_training_client_from_state_with_optimizer(path).result()
    assert loss(whole) == kept
    assert step(whole) == continued
    assert loss(whole) == loss(client)
    fresh = service.create_training_client_from_state(path).result()
    assert loss(fresh) == kept
    step(fresh)
    assert loss(fresh) != loss(client)


def test_state_is_loaded_into_a_model_that_has_just_been_made(server: Any) -> None:
    service = server.client_for()
    source = training_client(service)
    step(source)
    path = source.save_state("kept").result().path
    for name in ("load_state", "load_state_with_optimizer"):
        client = training_client(service, seed=9)
        getattr(client, name)(path).result()
        assert loss(client) == loss(source)


def test_a_name_is_taken_once_unless_overwritten(server: Any) -> None:
    client = training_client(server.client_for())
    client.save_state("one").result()
    with pytest.raises(tinker.TinkerError, match="exists"):
        client.save_state("one").result(timeout=120)
    step(client)
    path = client.save_state("one", overwrite=True).result().path
    assert loss(server.client_for().create_training_client_from_state(path).result()) == loss(client)


def test_weights_for_samplers(server: Any) -> None:
    client = training_client(server.client_for())
    step(client)
    named = client.save_weights_for_sampler("named").result().path
    assert named == f"tinker://{client.model_id}/sampler_weights/named"
    from_name = client.create_sampling_client(named).result()
    ephemeral = client.save_weights_and_get_sampling_client().result()
    inflight = client.save_weights_and_get_sampling_client(kind="inflight").result()
    rows = [sampler.compute_logprobs(PROMPT).result() for sampler in (from_name, ephemeral, inflight)]
    assert rows[0] == rows[1] == rows[2]
    assert client.save_weights_and_get_sampling_client("other").result().compute_logprobs(PROMPT).result() == rows[0]


def test_external_weights(server: Any) -> None:
    client = training_client(server.client_for())
    saved = client.save_weights_external("out", ttl_seconds=3600).result()
    assert saved.path == f"tinker://{client.model_id}/external_weights/out"
    with pytest.raises(tinker.TinkerError, match="encryption"):
        client.save_weights_external("secret", age_encryption_recipients=["age1"]).result(timeout=120)


def test_info_and_tokenizer(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    client = server.client_for().create_lora_training_client(base_model=server.models[0], rank=4).result()
    info = client.get_info()
    assert (info.model_id, info.lora_rank, info.is_lora) == (client.model_id, 4, True)
    assert info.model_data.model_name == server.models[0]
    assert client.get_tokenizer().decode(client.get_tokenizer().encode("The answer is 7.")) == "The answer is 7."
    assert client.get_console_url()


def test_asynchronous_twins(server: Any) -> None:
    """The `_async` methods, and futures that are awaited."""

    async def drive() -> list[float]:
        service = server.client_for()
        client = await service.create_lora_training_client_async(base_model=ALIAS, rank=4, seed=1)
        forward = await client.forward_async([supervised()], "cross_entropy")
        backward = await client.forward_backward_async([supervised()], "cross_entropy")
        optim = await client.optim_step_async(ADAM)
        losses = [(await forward.result_async()).metrics["loss:sum"], (await backward).metrics["loss:sum"]]
        assert (await optim).metrics
        custom = await client.forward_backward_custom_async(
            [supervised()], lambda data, rows: (-sum(row.sum() for row in rows), {})
        )
        losses.append((await custom).metrics["loss:sum"])
        await (await client.optim_step_async(ADAM)).result_async()
        path = (await (await client.save_state_async("a")).result_async()).path
        sampler_path = (await (await client.save_weights_for_sampler_async("a")).result_async()).path
        await (await client.save_weights_external_async("a")).result_async()
        assert (await client.get_info_async()).model_id == client.model_id
        one = await client.create_sampling_client_async(sampler_path)
        two = await client.save_weights_and_get_sampling_client_async()
        assert await one.compute_logprobs_async(PROMPT) == await two.compute_logprobs_async(PROMPT)
        again = await service.create_training_client_from_state_async(path)
        whole = await service.create_training_client_from_state_with_optimizer_async(path)
        made = await service.create_lora_training_client_async(base_model=ALIAS, rank=4)
        await (await made.load_state_async(path)).result_async()
        also = await service.create_lora_training_client_async(base_model=ALIAS, rank=4)
        await (await also.load_state_with_optimizer_async(path)).result_async()
        for other in (again, whole, made, also):
            result = await (await other.forward_async([supervised()], "cross_entropy")).result_async()
            losses.append(result.metrics["loss:sum"])
        return losses

    losses = asyncio.run(drive())
    assert losses[0] == pytest.approx(losses[1])
    assert losses[1] > losses[2] > losses[3]
    assert len(set(losses[3:])) == 1


def test_input_that_cannot_be_trained_on_is_refused_at_once(server: Any) -> None:
    service = server.client_for()
    bad = datum([5, 6], target_tokens=[6, 999_999], weights=[1.0, 1.0])
    with pytest.raises(tinker.TinkerError, match="vocabulary"):
        training_client(service).forward_backward([bad], "cross_entropy").result(timeout=120)
    client = training_client(service)
    with pytest.raises(tinker.TinkerError, match="context"):
        client.forward_backward([supervised(300)], "cross_entropy").result(timeout=120)
    with pytest.raises(tinker.TinkerError, match=r"optim_step|forward_backward"):
        client.optim_step(ADAM).result(timeout=120)  # A step on part of a batch would be a wrong step.
    assert step(client)["grad_norm"] > 0
    assert len(tokens(3)) == 4
