"""The packed trainer's gradients, log-probabilities and metrics against a plain loop."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from plait.config.task import LossSettings
from plait.models.decoder import Decoder
from plait.types.datum import Datum
from tests.training.tiny import (
    PPO,
    gradients,
    make_adapter,
    make_datums,
    make_decoder,
    make_trainer,
    plain_gradients,
    plain_logprobs,
    same_bits,
    with_own_logprobs,
)

PlainLoss = Callable[[Tensor, Datum, Tensor | None], Tensor]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return make_decoder()


def _is(logp: Tensor, q: Tensor, a: Tensor, w: Tensor, base: Tensor) -> Tensor:
    return -((logp - q).exp() * a).sum()


def _ppo(logp: Tensor, q: Tensor, a: Tensor, w: Tensor, base: Tensor) -> Tensor:
    ratio = (logp - q).exp()
    return -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).sum()


def _gspo(logp: Tensor, q: Tensor, a: Tensor, w: Tensor, base: Tensor) -> Tensor:
    value = ((logp - q) * (w > 0)).sum().div((w > 0).sum()).exp().detach() * (logp - logp.detach()).exp()
    return -torch.min(value * a, value.clamp(0.8, 1.2) * a).sum()


PLAIN_LOSSES: dict[str, tuple[dict[str, Any], Callable[..., Tensor]]] = {
    "cross_entropy": ({"kind": "cross_entropy"}, lambda logp, q, a, w, base: -(logp * w).sum()),
    "importance_sampling": ({"kind": "importance_sampling"}, _is),
    "ppo": ({"kind": "ppo"}, _ppo),
    "cispo": ({"kind": "cispo"}, lambda logp, q, a, w, base: -((logp - q).exp().clamp(0, 4).detach() * logp * a).sum()),
    "dro": ({"kind": "dro"}, lambda logp, q, a, w, base: -(logp * a - w * 0.025 * (logp - q) ** 2).sum()),
    "gspo": ({"kind": "gspo"}, _gspo),
    "ppo with kl": (
        {"kind": "ppo", "kl_to_base": 0.3},
        lambda logp, q, a, w, base: _ppo(logp, q, a, w, base) + 0.3 * (w * ((base - logp).exp() - 1 - (base - logp))).sum(),
    ),
}


def plain(name: str) -> PlainLoss:
    def loss(logprobs_T: Tensor, datum: Datum, base_T: Tensor | None) -> Tensor:
        q, a, w = (torch.tensor(values) for values in (datum.logprobs, datum.advantages, datum.weights))
        return PLAIN_LOSSES[name][1](logprobs_T, q, a, w, base_T)

    return loss


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 2e-6) -> None:
    assert found.keys() == expected.keys()
    scale = max(tensor.abs().max().item() for tensor in expected.values())
    assert scale > 1e-4
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max().item() <= tolerance * scale, name


@pytest.mark.parametrize("name", PLAIN_LOSSES)
@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 4096])
def test_gradients_equal_the_plain_loop(decoder: Decoder, name: str, micro_batch_tokens: int) -> None:
    datums = make_datums(temperature=0.8)
    trainer = make_trainer(decoder, micro_batch_tokens=micro_batch_tokens)
    found = gradients(trainer, datums, LossSettings(**PLAIN_LOSSES[name][0]))
    assert_close(found, plain_gradients(decoder, make_adapter(), datums, plain(name)))


@pytest.mark.parametrize("seed", range(6))
def test_gradients_do_not_depend_on_cut_or_order(decoder: Decoder, seed: int) -> None:
    datums = make_datums(seed, num_groups=1 + seed, group_size=1 + seed % 4)
    expected = plain_gradients(decoder, make_adapter(seed), datums, plain("ppo"))
    for tokens in (1, 17, 64, 1000):
        assert_close(gradients(make_trainer(decoder, seed, micro_batch_tokens=tokens), datums), expected)
    whole = gradients(make_trainer(decoder, seed), datums)
    assert same_bits(gradients(make_trainer(decoder, seed), datums[::-1]), whole)


def test_checkpointing_changes_no_bit(decoder: Decoder) -> None:
    datums = make_datums()
    assert same_bits(gradients(make_trainer(decoder, checkpoint_layers=True), datums), gradients(make_trainer(decoder), datums))


def test_attention_that_is_computed_again_changes_no_bit(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    datums = make_datums()
    kept = gradients(make_trainer(decoder), datums)
    monkeypatch.setattr("plait.training.packed_attention.MAX_KEPT_SCORES", 0)
    assert same_bits(gradients(make_trainer(decoder), datums), kept)


def test_a_head_in_small_chunks_changes_only_rounding(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain_gradients(decoder, make_adapter(), make_datums(), plain("ppo"))
    monkeypatch.setattr("plait.training.head.CHUNK_ROWS", 3)
    assert_close(gradients(make_trainer(decoder), make_datums()), expected)


def test_logprobs_come_back_in_arrival_order_where_they_were_needed(decoder: Decoder) -> None:
    datums = make_datums(temperature=0.6)[::-1]
    trainer = make_trainer(decoder, micro_batch_tokens=50)
    result = trainer.forward_backward(datums, PPO)
    everywhere = trainer.forward(datums)
    for datum, found, full in zip(datums, result.logprobs, everywhere, strict=True):
        expected = plain_logprobs(decoder, datum, make_adapter()).numpy()
        counted = np.array(datum.weights) != 0
        assert found.dtype == np.float32
        assert np.isnan(found[~counted]).all()
        np.testing.assert_allclose(found[counted], expected[counted], atol=2e-6)
        np.testing.assert_allclose(full, expected, atol=2e-6)


def test_every_position_on_request_and_without_weights(decoder: Decoder) -> None:
    trainer = make_trainer(decoder)
    logprobs = trainer.forward_backward(make_datums(), PPO, every_position=True).logprobs
    assert all(bool(np.isfinite(row).all()) for row in logprobs)
    assert_close(dict(trainer._gradients), gradients(make_trainer(decoder), make_datums()))
    bare = [Datum(d.tokens, d.target_tokens, (), d.logprobs, d.advantages) for d in make_datums()]
    assert_close(gradients(make_trainer(decoder), bare), gradients(make_trainer(decoder), make_datums()))


def test_a_datums_ratio_mask_says_which_positions_gspo_takes_its_ratio_over(decoder: Decoder) -> None:
    datums = make_datums()
    masks = [tuple(float(weight != 0) for weight in datum.weights) for datum in datums]
    masked = [msgspec.structs.replace(d, sequence_ratio_mask=mask) for d, mask in zip(datums, masks, strict=True)]

    def losses(datums: list[Datum], every_position: bool) -> float:
        return make_trainer(decoder).forward_backward(datums, LossSettings(kind="gspo"), every_position).metrics["loss"]

    counted = losses(datums, every_position=False)
    assert losses(masked, every_position=True) == pytest.approx(counted)
    assert losses(datums, every_position=True) != pytest.approx(counted)


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0])
def test_ratio_is_one_at_any_temperature(decoder: Decoder, temperature: float) -> None:
    """P25, P26: the trainer scores the distribution that was sampled from."""
    datums = make_datums(temperature=temperature)
    own = with_own_logprobs(datums, [plain_logprobs(decoder, d, make_adapter()).numpy() for d in datums])
    metrics = make_trainer(decoder).forward_backward(own, PPO).metrics
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["logprob_gap_max"] < 1e-4
    forgotten = [Datum(d.tokens, d.target_tokens, d.weights, d.logprobs, d.advantages, temperature + 0.2) for d in own]
    assert make_trainer(decoder).forward_backward(forgotten, PPO).metrics["logprob_gap_max"] > 1e-2


def test_metrics_are_measured_or_absent(decoder: Decoder) -> None:
    datums = make_datums()
    trainer = make_trainer(decoder, micro_batch_tokens=30)
    metrics = trainer.forward_backward(datums, LossSettings(kind="ppo", kl_to_base=0.1)).metrics
    logprobs = [plain_logprobs(decoder, d, make_adapter()) for d in datums]
    gaps = [float(row[t]) - d.logprobs[t] for d, row in zip(datums, logprobs, strict=True) for t, w in enumerate(d.weights) if w]
    assert metrics["num_tokens"] == len(gaps)
    assert metrics["ratio_mean"] == pytest.approx(float(np.exp(gaps).mean()), rel=1e-5)
    assert metrics["logprob_gap_max"] == pytest.approx(max(map(abs, gaps)), rel=1e-4)
    assert metrics["clip_fraction"] == pytest.approx(float(np.mean((np.exp(gaps) > 1.2) | (np.exp(gaps) < 0.8))))
    assert metrics["kl_to_base"] > 0
    supervised = [Datum(d.tokens, d.target_tokens, d.weights) for d in datums]
    assert trainer.forward_backward(supervised, LossSettings(kind="cross_entropy")).metrics.keys() == {"loss", "num_tokens"}
    assert trainer.start(datums, None).result().metrics.keys() == {"ratio_mean", "logprob_gap_max"}
