"""AdamW by hand, its state bit for bit, and that it touches nothing else."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.config.task import OptimizerSettings
from plait.training.optimizer import AdapterOptimizer
from plait.types.errors import PlaitError, StateError

SETTINGS = OptimizerSettings(learning_rate=0.01, weight_decay=0.1)


def parameters(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 4, generator=generator).requires_grad_() for name in ("b.B", "a.A")}


def gradients(seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 4, generator=generator) * scale for name in ("a.A", "b.B")}


def same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_two_steps_by_hand() -> None:
    weights = {"w": torch.tensor([1.0]).requires_grad_()}
    optimizer = AdapterOptimizer(weights)
    settings = OptimizerSettings(learning_rate=0.1, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.5, max_grad_norm=0)
    expected, first, second = 1.0, 0.0, 0.0
    for step, gradient in enumerate((2.0, -1.0), start=1):
        assert optimizer.step({"w": torch.tensor([gradient])}, settings) == pytest.approx(abs(gradient))
        first, second = 0.9 * first + 0.1 * gradient, 0.95 * second + 0.05 * gradient**2
        expected = expected * (1 - 0.1 * 0.5)
        expected -= 0.1 * (first / (1 - 0.9**step)) / ((second / (1 - 0.95**step)) ** 0.5 + 1e-8)
        assert weights["w"].item() == pytest.approx(expected, rel=1e-6)
    assert optimizer.num_steps == 2


def test_clipping_scales_to_the_norm_and_reports_the_norm_before() -> None:
    plain, clipped = parameters(), parameters()
    small = gradients(1)
    norm = torch.cat([g.flatten() for g in small.values()]).norm().item()
    AdapterOptimizer(plain).step({n: g * (0.5 / norm) for n, g in small.items()}, OptimizerSettings(max_grad_norm=0))
    found = AdapterOptimizer(clipped).step({n: g * 100 for n, g in small.items()}, OptimizerSettings(max_grad_norm=0.5))
    assert found == pytest.approx(100 * norm, rel=1e-5)
    for name in plain:
        torch.testing.assert_close(clipped[name], plain[name])


def test_state_round_trips_through_a_file_bit_for_bit(tmp_path: Path) -> None:
    unbroken, before = parameters(), parameters()
    whole, half = AdapterOptimizer(unbroken), AdapterOptimizer(before)
    for step in range(6):
        whole.step(gradients(step), SETTINGS, 0.01 / (step + 1))
    for step in range(3):
        half.step(gradients(step), SETTINGS, 0.01 / (step + 1))
    save_file(half.state_tensors(), tmp_path / "optimizer.safetensors")
    after = {name: tensor.detach().clone().requires_grad_() for name, tensor in before.items()}
    resumed = AdapterOptimizer(after)
    resumed.load_state_tensors(load_file(tmp_path / "optimizer.safetensors"))
    assert same_bits(resumed.state_tensors(), half.state_tensors())
    for step in range(3, 6):
        resumed.step(gradients(step), SETTINGS, 0.01 / (step + 1))
    assert same_bits(after, unbroken)
    assert same_bits(resumed.state_tensors(), whole.state_tensors())
    assert resumed.num_steps == 6


def test_saved_state_is_a_copy() -> None:
    optimizer = AdapterOptimizer(parameters())
    optimizer.step(gradients(0), SETTINGS)
    saved = optimizer.state_tensors()
    copies = {name: tensor.clone() for name, tensor in saved.items()}
    optimizer.step(gradients(1), SETTINGS)
    assert same_bits(saved, copies)


def test_zero_gradients_still_move_weights_so_they_are_no_skip() -> None:
    weights = parameters()
    optimizer = AdapterOptimizer(weights)
    optimizer.step(gradients(0), SETTINGS)
    before = {name: tensor.detach().clone() for name, tensor in weights.items()}
    assert optimizer.step({name: torch.zeros(3, 4) for name in weights}, SETTINGS) == 0.0
    assert not same_bits(before, {name: tensor.detach() for name, tensor in weights.items()})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_moves_nothing(bad: float) -> None:
    weights = parameters()
    optimizer = AdapterOptimizer(weights)
    before, state = {name: tensor.detach().clone() for name, tensor in weights.items()}, optimizer.state_tensors()
    broken = gradients(0)
    broken["a.A"][0, 0] = bad
    with pytest.raises(PlaitError, match="the gradient's norm is"):
        optimizer.step(broken, SETTINGS)
    assert same_bits(before, {name: tensor.detach() for name, tensor in weights.items()})
    assert same_bits(state, optimizer.state_tensors())


def test_a_foreign_state_is_refused_and_changes_nothing() -> None:
    optimizer = AdapterOptimizer(parameters())
    optimizer.step(gradients(0), SETTINGS)
    state = optimizer.state_tensors()
    for change, message in (
        ({"exp_avg.other": torch.zeros(1)}, "has an unknown tensor 'exp_avg.other'"),
        ({"exp_avg.a.A": torch.zeros(1)}, "has shape"),
    ):
        with pytest.raises(StateError, match=message):
            optimizer.load_state_tensors(state | change)
    with pytest.raises(StateError, match="lacks tensor 'step'"):
        optimizer.load_state_tensors({name: tensor for name, tensor in state.items() if name != "step"})
    assert same_bits(state, optimizer.state_tensors())
