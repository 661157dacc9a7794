"""The packed trainer against a plain loop, and the life of its gradients and state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.training.trainer import AdapterTrainer
from plait.types.datum import Datum
from plait.types.errors import AdapterError, ConfigError, PlaitError, StateError
from tests.training.tiny import (
    make_adapter,
    make_datums,
    make_decoder,
    make_trainer,
    plain_gradients,
    plain_logprobs,
    with_own_logprobs,
)

OPTIMIZER = OptimizerSettings(learning_rate=0.01, weight_decay=0.01)
PPO = LossSettings(kind="ppo")
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


def gradients(trainer: AdapterTrainer, datums: list[Datum], loss: LossSettings = PPO) -> dict[str, Tensor]:
    trainer.forward_backward(datums, loss)
    return dict(trainer._gradients)


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 2e-6) -> None:
    assert found.keys() == expected.keys()
    scale = max(tensor.abs().max().item() for tensor in expected.values())
    assert scale > 1e-4
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max().item() <= tolerance * scale, name


def same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


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


def test_one_call_or_four_give_the_same_step(decoder: Decoder) -> None:
    """P13."""
    datums = make_datums()
    whole, split = make_trainer(decoder), make_trainer(decoder)
    whole.forward_backward(datums, PPO)
    for start in range(4):
        split.forward_backward(datums[start::4], PPO)
    norms = [trainer.optim_step(OPTIMIZER)["grad_norm"] for trainer in (whole, split)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    for name, tensor in whole.adapter_tensors().items():
        torch.testing.assert_close(split.adapter_tensors()[name], tensor, atol=1e-6, rtol=1e-6)


def test_gradient_norm_is_the_same_at_every_micro_batch_size(decoder: Decoder) -> None:
    """P52."""
    norms = []
    for tokens in (1, 20, 50, 100, 4096):
        trainer = make_trainer(decoder, micro_batch_tokens=tokens)
        trainer.forward_backward(make_datums(), PPO)
        norms.append(trainer.optim_step(OPTIMIZER)["grad_norm"])
    assert norms == pytest.approx([norms[0]] * len(norms), rel=1e-5)


def train(trainer: AdapterTrainer, steps: range) -> None:
    for step in steps:
        trainer.forward_backward(make_datums(step), PPO)
        trainer.optim_step(OPTIMIZER, 0.01 / (1 + step))


def test_a_task_alone_equals_the_task_among_others(decoder: Decoder) -> None:
    """P50, with the slices of two tasks' passes taking turns."""
    alone, shared, other = (make_trainer(decoder, seed, micro_batch_tokens=40) for seed in (0, 0, 1))
    train(alone, range(3))
    for step in range(3):
        passes = [shared.start(make_datums(step), PPO), other.start(make_datums(step + 10, num_groups=5), PPO)]
        while any(training_pass.num_slices_left for training_pass in passes):
            for training_pass in passes:
                next(training_pass, None)
        shared.optim_step(OPTIMIZER, 0.01 / (1 + step))
        other.optim_step(OPTIMIZER)
    assert same_bits(shared.adapter_tensors(), alone.adapter_tensors())
    assert same_bits(shared.state_tensors(), alone.state_tensors())
    assert not same_bits(shared.adapter_tensors(), other.adapter_tensors())


def test_an_idle_task_stays_byte_for_byte(decoder: Decoder) -> None:
    """P53."""
    idle, busy = make_trainer(decoder, 1), make_trainer(decoder, 0)
    train(idle, range(2))
    idle.forward_backward(make_datums(7), PPO)
    adapter, state, waiting = idle.adapter_tensors(), idle.state_tensors(), {n: g.clone() for n, g in idle._gradients.items()}
    for step in range(100):
        busy.forward_backward(make_datums(step, num_groups=1, group_size=2), PPO)
        busy.optim_step(OPTIMIZER)
    assert same_bits(idle.adapter_tensors(), adapter)
    assert same_bits(idle.state_tensors(), state)
    assert same_bits(idle._gradients, waiting)


def test_a_step_without_gradient_changes_nothing(decoder: Decoder) -> None:
    """P48: the version advances, weights and moments do not."""
    trainer = make_trainer(decoder)
    train(trainer, range(2))
    adapter, state = trainer.adapter_tensors(), trainer.state_tensors()
    assert trainer.forward_backward([], PPO).metrics == {"loss": 0.0, "num_tokens": 0.0}
    assert trainer.skip_step() == {"grad_norm": 0.0}
    assert same_bits(trainer.adapter_tensors(), adapter)
    assert same_bits(trainer.state_tensors(), state)
    with pytest.raises(PlaitError, match="no gradients wait"):
        trainer.optim_step(OPTIMIZER)
    trainer.forward_backward(make_datums(), PPO)
    with pytest.raises(PlaitError, match="cannot be skipped"):
        trainer.skip_step()


def test_resumed_training_equals_unbroken_training(decoder: Decoder, tmp_path: Path) -> None:
    unbroken, first = make_trainer(decoder), make_trainer(decoder)
    train(unbroken, range(5))
    train(first, range(2))
    save_file(first.adapter_tensors(), tmp_path / "adapter.safetensors")
    save_file(first.state_tensors(), tmp_path / "optimizer.safetensors")
    resumed = make_trainer(decoder, seed=9)
    resumed.forward_backward(make_datums(), PPO)
    resumed.load_state(load_file(tmp_path / "adapter.safetensors"), load_file(tmp_path / "optimizer.safetensors"))
    assert not resumed.has_gradients
    train(resumed, range(2, 5))
    assert same_bits(resumed.adapter_tensors(), unbroken.adapter_tensors())
    assert same_bits(resumed.state_tensors(), unbroken.state_tensors())


def test_foreign_tensors_are_refused_and_change_nothing(decoder: Decoder) -> None:
    trainer = make_trainer(decoder)
    train(trainer, range(1))
    adapter, state = trainer.adapter_tensors(), trainer.state_tensors()
    name = next(iter(adapter))
    with pytest.raises(AdapterError, match="is missing"):
        trainer.load_state({n: t for n, t in adapter.items() if n != name}, state)
    with pytest.raises(AdapterError, match="has shape"):
        trainer.load_state(adapter | {name: torch.zeros(1, 1)}, state)
    with pytest.raises(StateError, match="lacks tensor"):
        trainer.load_state(make_adapter(5), {n: t for n, t in state.items() if n != "step"})
    assert same_bits(trainer.adapter_tensors(), adapter)
    assert same_bits(trainer.state_tensors(), state)


def test_a_pass_counts_only_when_it_is_complete(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(decoder, micro_batch_tokens=40)
    dropped = trainer.start(make_datums(), PPO)
    assert dropped.num_slices_left > 1
    next(dropped)
    assert not trainer.has_gradients
    broken = make_datums()
    broken[3] = msgspec.structs.replace(broken[3], logprobs=())
    with pytest.raises(ConfigError, match="needs logprobs"):
        trainer.forward_backward(broken, PPO)
    failed = trainer.start(broken, PPO)
    with pytest.raises(ConfigError, match="needs logprobs"):
        list(failed)
    assert next(failed, "ended") == "ended"
    with pytest.raises(PlaitError, match="a slice of this pass has failed"):
        failed.result()
    with pytest.raises(ConfigError, match="target_tokens of datum 0 holds 97: the model has ids 0 to 96"):
        trainer.forward_backward([Datum((1,), (97,), (1.0,))], LossSettings(kind="cross_entropy"))
    poisoned = make_datums()
    poisoned[0] = msgspec.structs.replace(poisoned[0], advantages=(float("nan"),) * len(poisoned[0].tokens))
    with pytest.raises(PlaitError, match="the loss is nan"):
        trainer.forward_backward(poisoned, PPO)
    assert not trainer.has_gradients
    expected = gradients(make_trainer(decoder, micro_batch_tokens=40), make_datums())
    assert same_bits(gradients(trainer, make_datums()), expected)


def test_training_raises_the_probability_of_what_was_rewarded(decoder: Decoder) -> None:
    trainer = make_trainer(decoder)
    datum = Datum((1, 2, 3), (2, 3, 4), (0, 0, 1.0))
    before = trainer.forward([datum])[0][-1]
    for _ in range(30):
        trainer.forward_backward([datum], LossSettings(kind="cross_entropy"))
        trainer.optim_step(OPTIMIZER)
    assert trainer.forward([datum])[0][-1] > max(before, -0.5)
