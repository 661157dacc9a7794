"""The life of an adapter's gradients and state: steps, other tasks, resuming, failures."""

from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.training.trainer import AdapterTrainer
from plait.types.datum import Datum
from plait.types.errors import AdapterError, ConfigError, PlaitError, StateError
from tests.training.tiny import PPO, gradients, make_adapter, make_datums, make_decoder, make_trainer, same_bits

OPTIMIZER = OptimizerSettings(learning_rate=0.01, weight_decay=0.01)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return make_decoder()


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
    """P53: through a hundred steps of another."""
    idle, busy = make_trainer(decoder, 1), make_trainer(decoder, 0)
    datums = [make_datums(seed, num_groups=1, group_size=1) for seed in range(2)]
    train(idle, range(2))
    idle.forward_backward(make_datums(7), PPO)
    adapter, state, waiting = idle.adapter_tensors(), idle.state_tensors(), {n: g.clone() for n, g in idle._gradients.items()}
    before = busy.adapter_tensors()
    for step in range(100):
        busy.forward_backward(datums[step % 2], PPO)
        busy.optim_step(OPTIMIZER)
    assert not same_bits(busy.adapter_tensors(), before)
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
    with pytest.raises(ConfigError, match="target_tokens of datum 0 holds 97; the model has ids 0 to 96"):
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
