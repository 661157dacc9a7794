"""Losses of one sequence, as sums over its counted positions.

- T runs over the counted positions of one sequence; `loss(logprobs_T, inputs, settings)` gives (loss, metrics).
- Everything is a sum, so a co-tenant, a packing or a micro-batch cannot change anyone's gradient. A normaliser belongs into
  the advantages and the weights. Metrics are sums too, without gradients.
- A ratio is exp(trainer log-probability - sampler log-probability); bounds on it are absolute.
- An unknown loss or a missing input is an error.

Formulas are those of the Tinker API (thinkingmachines.ai, docs on losses); each function names its paper. `stable_reinforce` is
our own: the API's formula of that name is not public.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.config.task import LossSettings
from plait.training.names import choose
from plait.types.errors import ConfigError

PPO_BOUNDS = (0.8, 1.2)
CISPO_BOUNDS = (0.0, 4.0)
DRO_BETA = 0.05
STABLE_BOUNDS = (0.0, 2.0)

Metrics = dict[str, Tensor]
LossAndMetrics = tuple[Tensor, Metrics]


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a loss may read besides the trainer's log-probabilities, each of shape [T]. What it reads must be given."""

    sampler_logprobs_T: Tensor | None = None
    advantages_T: Tensor | None = None
    weights_T: Tensor | None = None
    """cross_entropy: the factor of each log-probability. Elsewhere: the factor of penalties, 1 if absent."""
    base_logprobs_T: Tensor | None = None
    """The frozen base's log-probabilities, for `kl_to_base`."""
    sequence_ratio_mask_T: Tensor | None = None
    """gspo: which positions the sequence's ratio is taken over; all of them if absent."""


def cross_entropy(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(w logp). Weights may be of either sign."""
    return -(logprobs_T * _given("weights", inputs.weights_T, settings)).sum(), {}


def importance_sampling(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(ratio A): the policy gradient, corrected for the sampler's distribution."""
    return -(_ratio(logprobs_T, inputs, settings) * _advantages(inputs, settings)).sum(), {}


def ppo(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(min(ratio A, clip(ratio) A)) (arXiv:1707.06347)."""
    return _clipped(_ratio(logprobs_T, inputs, settings), inputs, settings)


def gspo(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """ppo with the sequence's ratio, the geometric mean of its tokens', as value and each token's own gradient.

    That is the token form of arXiv:2507.18071.
    """
    log_ratio_T = logprobs_T.detach() - _given("logprobs", inputs.sampler_logprobs_T, settings)
    mask_T = torch.ones_like(log_ratio_T) if inputs.sequence_ratio_mask_T is None else inputs.sequence_ratio_mask_T.to(log_ratio_T)
    sequence_ratio = torch.exp((log_ratio_T * mask_T).sum() / mask_T.sum().clamp(min=1))
    return _clipped(sequence_ratio * torch.exp(logprobs_T - logprobs_T.detach()), inputs, settings)


def cispo(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(stop_gradient(clip(ratio)) logp A): clipped tokens keep a gradient (arXiv:2506.13585)."""
    return _weighted_reinforce(logprobs_T, inputs, settings, CISPO_BOUNDS)


def dro(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(logp A - w beta / 2 (logp - q)^2) (arXiv:2405.19107). The weights w carry the normaliser to the penalty."""
    beta = DRO_BETA if settings.beta is None else settings.beta
    log_ratio_T = logprobs_T - _given("logprobs", inputs.sampler_logprobs_T, settings)
    penalty_T = 0.5 * beta * log_ratio_T.square() * _penalty_weights(logprobs_T, inputs)
    return -(logprobs_T * _advantages(inputs, settings) - penalty_T).sum(), {}


def stable_reinforce(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """-sum(stop_gradient(clip(ratio)) logp A - w kl_coeff / 2 (logp - q)^2): REINFORCE with truncated importance weights.

    The penalty pulls towards the sampler's policy; on-policy it is zero, and so is its gradient. Its expected gradient under the
    sampler is that of the KL divergence between the two ("k2", joschu.net/blog/kl-approx.html). w are the weights; without any, the
    penalty counts where the advantage is not zero, as it is on sampled tokens alone.
    """
    loss, metrics = _weighted_reinforce(logprobs_T, inputs, settings, STABLE_BOUNDS)
    if not settings.kl_coeff:
        return loss, metrics
    is_sampled_T = (_advantages(inputs, settings) != 0).to(logprobs_T)
    weights_T = is_sampled_T if inputs.weights_T is None else inputs.weights_T
    # Where nothing was sampled q is a filler, whose square may not even be finite.
    log_ratio_T = torch.where(weights_T != 0, logprobs_T - _given("logprobs", inputs.sampler_logprobs_T, settings), 0.0)
    return loss + 0.5 * settings.kl_coeff * (log_ratio_T.square() * weights_T).sum(), metrics


_LOSSES: dict[str, Callable[[Tensor, LossInputs, LossSettings], LossAndMetrics]] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
    "dro": dro,
    "gspo": gspo,
    "stable_reinforce": stable_reinforce,
}


def sequence_loss(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    """The loss that `settings` names, with its penalty; metrics `loss`, `num_tokens`, and what the loss adds.

    Raises ConfigError if the loss is unknown, an input that it needs is missing, or bounds are reversed.
    """
    loss, metrics = choose("loss", settings.kind, _LOSSES)(logprobs_T, inputs, settings)
    if settings.kl_to_base > 0:
        kl_T = kl_to_base(logprobs_T, _given("base log-probabilities", inputs.base_logprobs_T, settings))
        loss = loss + settings.kl_to_base * (kl_T * _kl_weights(logprobs_T, inputs, settings)).sum()
        metrics["kl_to_base"] = kl_T.detach().sum()
    return loss, metrics | {"loss": loss.detach(), "num_tokens": torch.tensor(len(logprobs_T))}


def kl_to_base(logprobs_T: Tensor, base_logprobs_T: Tensor) -> Tensor:
    """Estimate of KL(policy || base) at each sampled token, never negative: d - 1 - log(d), d = base / policy.

    Low variance, unbiased ("k3", joschu.net/blog/kl-approx.html).
    """
    log_quotient_T = base_logprobs_T - logprobs_T
    return torch.expm1(log_quotient_T) - log_quotient_T


def _clipped(ratio_T: Tensor, inputs: LossInputs, settings: LossSettings) -> LossAndMetrics:
    low, high = _bounds(settings, PPO_BOUNDS)
    advantages_T = _advantages(inputs, settings)
    clamped_T = ratio_T.clamp(low, high)
    loss = -torch.minimum(ratio_T * advantages_T, clamped_T * advantages_T).sum()
    return loss, _num_clipped(clamped_T, ratio_T, advantages_T)


def _num_clipped(clamped_T: Tensor, ratio_T: Tensor, advantages_T: Tensor) -> Metrics:
    """Where there is no advantage, clipping changes nothing; a given token's ratio may be anything."""
    return {"num_clipped": ((clamped_T != ratio_T) & (advantages_T != 0)).sum()}


def _weighted_reinforce(
    logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings, default: tuple[float, float]
) -> LossAndMetrics:
    low, high = _bounds(settings, default)
    ratio_T = _ratio(logprobs_T.detach(), inputs, settings)
    factor_T = ratio_T.clamp(low, high)
    advantages_T = _advantages(inputs, settings)
    return -(factor_T * logprobs_T * advantages_T).sum(), _num_clipped(factor_T, ratio_T, advantages_T)


def _bounds(settings: LossSettings, default: tuple[float, float]) -> tuple[float, float]:
    low = default[0] if settings.clip_low is None else settings.clip_low
    high = default[1] if settings.clip_high is None else settings.clip_high
    if low > high:
        raise ConfigError(f"clip_low {low} is above clip_high {high} in loss {settings.kind!r}.", "Both bound the ratio itself.")
    return low, high


def _ratio(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> Tensor:
    return torch.exp(logprobs_T - _given("logprobs", inputs.sampler_logprobs_T, settings))


def _advantages(inputs: LossInputs, settings: LossSettings) -> Tensor:
    return _given("advantages", inputs.advantages_T, settings)


def _given(name: str, value: Tensor | None, settings: LossSettings) -> Tensor:
    if value is None:
        raise ConfigError(f"loss {settings.kind!r} needs {name}, which a datum lacks.", "Give them for every position.")
    return value


def _penalty_weights(logprobs_T: Tensor, inputs: LossInputs) -> Tensor:
    return torch.ones_like(logprobs_T) if inputs.weights_T is None else inputs.weights_T


def _kl_weights(logprobs_T: Tensor, inputs: LossInputs, settings: LossSettings) -> Tensor:
    if settings.kind == "cross_entropy":
        raise ConfigError("kl_to_base has no meaning for loss 'cross_entropy'.", "Set it to 0 or use importance_sampling.")
    return _penalty_weights(logprobs_T, inputs)
