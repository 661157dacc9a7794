"""Every loss against gradients computed by hand on three tokens (P19)."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from plait.config.task import LossSettings
from plait.training.losses import LossInputs, kl_to_base, sequence_loss
from plait.types.errors import ConfigError

SAMPLER = torch.tensor([-1.0, -2.0, -0.5])
RATIOS = torch.tensor([1.5, 0.5, 1.0])
LOGPROBS = SAMPLER + RATIOS.log()
ADVANTAGES = torch.tensor([2.0, -1.0, 3.0])
WEIGHTS = torch.tensor([1.0, 0.5, 2.0])
SEQUENCE_RATIO = 0.75 ** (1 / 3)
"""Geometric mean of the ratios."""

GRADIENTS = {
    "cross_entropy": [-1.0, -0.5, -2.0],
    "importance_sampling": [-1.5 * 2, 0.5, -3.0],
    # token 0: 1.5 > 1.2 with A > 0, and token 1: 0.5 < 0.8 with A < 0, are clipped
    "ppo": [0.0, 0.0, -3.0],
    # nothing leaves [0, 4]
    "cispo": [-1.5 * 2, 0.5, -3.0],
    # -(A - w beta log ratio)
    "dro": [-2.0 + 0.05 * 0.4054651, 1.0 - 0.5 * 0.05 * 0.6931472, -3.0],
    # the sequence's ratio 0.909 is inside [0.8, 1.2]
    "gspo": [-SEQUENCE_RATIO * 2, SEQUENCE_RATIO, -SEQUENCE_RATIO * 3],
    # nothing leaves [0, 2]
    "stable_reinforce": [-1.5 * 2, 0.5, -3.0],
}
VALUES = {
    "cross_entropy": -(LOGPROBS * WEIGHTS).sum().item(),
    "importance_sampling": -(3.0 - 0.5 + 3.0),
    "ppo": -(1.2 * 2 - 0.8 + 3.0),
    "cispo": -(RATIOS * LOGPROBS * ADVANTAGES).sum().item(),
    "dro": -(LOGPROBS * ADVANTAGES).sum().item() + 0.025 * (0.4054651**2 + 0.5 * 0.6931472**2),
    "gspo": -SEQUENCE_RATIO * 4.0,
    "stable_reinforce": -(RATIOS * LOGPROBS * ADVANTAGES).sum().item(),
}


Run = tuple[float, list[float], dict[str, float]]


def run(inputs: LossInputs | None = None, logprobs: Tensor = LOGPROBS, **settings: Any) -> Run:
    """Loss, its gradient and its metrics."""
    leaf = logprobs.clone().requires_grad_()
    loss, metrics = sequence_loss(leaf, inputs or LossInputs(SAMPLER, ADVANTAGES, WEIGHTS), LossSettings(**settings))
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad.tolist(), {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_value_and_gradient_by_hand(kind: str) -> None:
    loss, gradient, metrics = run(kind=kind)
    assert gradient == pytest.approx(GRADIENTS[kind], abs=1e-6)
    assert loss == pytest.approx(VALUES[kind], abs=1e-5)
    assert metrics["loss"] == pytest.approx(loss)
    assert metrics["num_tokens"] == 3


def test_losses_differ_in_their_gradients() -> None:
    tight: dict[str, dict[str, Any]] = {"cispo": {"clip_high": 1.2}, "stable_reinforce": {"kl_coeff": 0.1}}
    gradients = [tuple(run(kind=kind, **tight.get(kind, {}))[1]) for kind in GRADIENTS]
    assert len(set(gradients)) == len(gradients)


def test_ppo_keeps_the_pessimistic_side() -> None:
    inputs = LossInputs(SAMPLER, -ADVANTAGES)
    loss, gradient, metrics = run(inputs, kind="ppo")
    assert gradient == pytest.approx([3.0, -0.5, 3.0])
    assert loss == pytest.approx(3.0 - 0.5 + 3.0)
    assert metrics["num_clipped"] == 2


def test_bounds_are_absolute_and_settable() -> None:
    assert run(kind="ppo", clip_low=0.4, clip_high=1.6)[1] == pytest.approx([-3.0, 0.5, -3.0])
    assert run(kind="cispo", clip_low=0.9, clip_high=1.1)[1] == pytest.approx([-2.2, 0.9, -3.0])
    assert run(kind="cispo", clip_low=0.9, clip_high=1.1)[2]["num_clipped"] == 2


def test_cispo_default_is_one_sided() -> None:
    logprobs = SAMPLER + torch.tensor([5.0, 1e-3, 1.0]).log()
    assert run(logprobs=logprobs, kind="cispo")[1] == pytest.approx([-4.0 * 2, 1e-3, -3.0], rel=1e-5)


def test_stable_reinforce_truncates_the_importance_weight_and_keeps_the_gradient() -> None:
    logprobs = SAMPLER + torch.tensor([5.0, 1e-3, 1.0]).log()
    _, gradient, metrics = run(logprobs=logprobs, kind="stable_reinforce")
    assert gradient == pytest.approx([-2.0 * 2, 1e-3, -3.0], rel=1e-5)
    assert metrics["num_clipped"] == 1
    assert run(logprobs=logprobs, kind="stable_reinforce", clip_high=1.1)[1][0] == pytest.approx(-1.1 * 2)


def test_stable_reinforce_is_drawn_to_the_sampler() -> None:
    plain, drawn = run(kind="stable_reinforce"), run(kind="stable_reinforce", kl_coeff=0.1)
    # w kl_coeff log ratio
    expected = [0.1 * 0.4054651, 0.5 * 0.1 * -0.6931472, 0.0]
    assert [b - a for a, b in zip(plain[1], drawn[1], strict=True)] == pytest.approx(expected, abs=1e-6)
    assert drawn[0] - plain[0] == pytest.approx(0.05 * (0.4054651**2 + 0.5 * 0.6931472**2), abs=1e-6)
    on_policy = run(logprobs=SAMPLER, kind="stable_reinforce", kl_coeff=10.0)
    assert on_policy[1] == pytest.approx(run(logprobs=SAMPLER, kind="stable_reinforce")[1])


def test_stable_reinforce_without_weights_is_not_drawn_to_what_nobody_sampled() -> None:
    """Beside a prompt's token stands a filler, whatever it is."""
    inputs = LossInputs(torch.tensor([-torch.inf, -2.0, 0.0]), torch.tensor([0.0, -1.0, 0.0]))
    loss, gradient, _ = run(inputs, kind="stable_reinforce", kl_coeff=0.1)
    assert (gradient[0], gradient[2]) == (0.0, 0.0)
    assert gradient[1] == pytest.approx(0.5 - 0.1 * 0.6931472)
    assert math.isfinite(loss)


@pytest.mark.parametrize("kind", ["ppo", "cispo", "gspo", "stable_reinforce"])
def test_only_tokens_with_an_advantage_count_as_clipped(kind: str) -> None:
    inputs = LossInputs(LOGPROBS - 10.0, torch.tensor([0.0, 1.0, 0.0]))
    assert run(inputs, kind=kind)[2]["num_clipped"] == 1


def test_gspo_clips_the_sequence_and_takes_its_ratio_over_the_mask() -> None:
    mask = torch.tensor([True, False, True])
    loss, gradient, metrics = run(LossInputs(SAMPLER, ADVANTAGES, None, None, mask), kind="gspo")
    ratio = 1.5**0.5
    assert gradient == pytest.approx([0.0, ratio, 0.0])  # 1.22 is above 1.2: only the token with A < 0 goes on
    assert loss == pytest.approx(-(1.2 * 2 - ratio + 1.2 * 3))
    assert metrics["num_clipped"] == 3


def test_dro_beta_changes_the_pull() -> None:
    weak, strong = run(kind="dro")[1], run(kind="dro", beta=0.5)[1]
    assert strong[0] - weak[0] == pytest.approx(0.45 * 0.4054651, rel=1e-4)


def test_kl_penalty_by_hand() -> None:
    base = LOGPROBS + torch.tensor([2.0, 0.5, 1.0]).log()
    assert kl_to_base(LOGPROBS, base).tolist() == pytest.approx([2 - 1 - 0.6931472, 0.5 - 1 + 0.6931472, 0.0], abs=1e-6)
    inputs = LossInputs(SAMPLER, ADVANTAGES, WEIGHTS, base)
    plain, penalised = run(kind="importance_sampling"), run(inputs, kind="importance_sampling", kl_to_base=0.1)
    # d/dlogp (b/p - 1 - log(b/p)) = 1 - b/p
    expected = [0.1 * (1 - 2.0) * 1.0, 0.1 * (1 - 0.5) * 0.5, 0.0]
    assert [b - a for a, b in zip(plain[1], penalised[1], strict=True)] == pytest.approx(expected, abs=1e-6)
    assert penalised[2]["kl_to_base"] == pytest.approx(0.3068528 + 0.1931472, abs=1e-5)


def test_kl_estimate_is_unbiased() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, base = torch.randn(2, 50, generator=generator).log_softmax(-1)
    exact = (policy.exp() * (policy - base)).sum()
    assert (policy.exp() * kl_to_base(policy, base)).sum().item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        (LossInputs(), {"kind": "cross_entropy"}, "needs weights"),
        (LossInputs(advantages_T=ADVANTAGES), {"kind": "ppo"}, "needs logprobs"),
        (LossInputs(SAMPLER), {"kind": "importance_sampling"}, "needs advantages"),
        (LossInputs(SAMPLER, ADVANTAGES), {"kind": "dro", "kl_to_base": 0.1}, "needs base log-probabilities"),
        (LossInputs(SAMPLER, ADVANTAGES), {"kind": "ppo", "clip_low": 1.5}, "clip_low 1.5 is above clip_high 1.2"),
        (LossInputs(None, None, WEIGHTS, SAMPLER), {"kind": "cross_entropy", "kl_to_base": 0.1}, "kl_to_base has no meaning"),
    ],
)
def test_what_cannot_be_computed_is_an_error(inputs: LossInputs, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(inputs, **settings)


def test_unknown_loss_is_an_error_that_suggests() -> None:
    settings = LossSettings.model_construct(kind=cast(Any, "importance_sampled"), kl_to_base=0.0)
    with pytest.raises(ConfigError, match="Did you mean 'importance_sampling'"):
        sequence_loss(LOGPROBS, LossInputs(SAMPLER, ADVANTAGES), settings)
