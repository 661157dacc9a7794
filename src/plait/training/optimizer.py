"""AdamW over one adapter's parameters, with a state that can be saved and restored bit for bit.

- Every adapter has an optimizer of its own, so no step of one can move another.
- Only `step` moves weights and moments. A policy step without any gradient calls nothing here: zero gradients are not the
  same, since under them momentum and decay would still move the weights.
- The state is a flat mapping of tensors: `exp_avg.NAME`, `exp_avg_sq.NAME` (float32) and `step` (int64, steps taken).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from plait.config.task import OptimizerSettings
from plait.types.errors import PlaitError, StateError

STEP = "step"
MOMENTS = ("exp_avg", "exp_avg_sq")


class AdapterOptimizer:
    """Steps `parameters` (float32 leaves, changed in place) in the order of their names."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = {name: parameters[name] for name in sorted(parameters)}
        # One update per tensor in a fixed order: bits do not depend on how a fused kernel would cut the list.
        self._adamw = torch.optim.AdamW(self._parameters.values(), foreach=False, fused=False)
        self.load_state_tensors(self._fresh_state())

    def step(self, gradients: Mapping[str, Tensor], settings: OptimizerSettings, learning_rate: float | None = None) -> float:
        """Take one step and return the global norm of the gradients before clipping.

        `gradients` has a tensor for every parameter; it is scaled in place if its norm exceeds `max_grad_norm` (0: never).
        `learning_rate` overrides the settings', as a schedule does. Raises PlaitError, and moves nothing, if the norm is
        not finite.
        """
        gradients_P = [gradients[name] for name in self._parameters]
        norm = torch.nn.utils.get_total_norm(gradients_P, foreach=False)
        if not math.isfinite(norm.item()):
            raise PlaitError(f"the gradient's norm is {norm.item()}.", "Lower learning_rate, or look for broken rewards.")
        for parameter, gradient in zip(self._parameters.values(), gradients_P, strict=True):
            parameter.grad = gradient
        if settings.max_grad_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self._parameters.values(), settings.max_grad_norm, norm, foreach=False)
        self._apply(settings, settings.learning_rate if learning_rate is None else learning_rate)
        return norm.item()

    def _apply(self, settings: OptimizerSettings, learning_rate: float) -> None:
        (group,) = self._adamw.param_groups
        group["lr"], group["betas"] = learning_rate, (settings.beta1, settings.beta2)
        group["eps"], group["weight_decay"] = settings.epsilon, settings.weight_decay
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)

    @property
    def num_steps(self) -> int:
        """Steps taken since the start, over restarts too."""
        first = next(iter(self._parameters.values()))
        return int(self._adamw.state[first][STEP].item())

    def state_tensors(self) -> dict[str, Tensor]:
        """Copies of the whole state, on the CPU."""
        tensors = {STEP: torch.tensor(self.num_steps, dtype=torch.int64)}
        for name, parameter in self._parameters.items():
            for moment in MOMENTS:
                tensors[f"{moment}.{name}"] = self._adamw.state[parameter][moment].detach().to("cpu", copy=True)
        return tensors

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the whole state. Raises StateError if names or shapes are not this adapter's."""
        expected = self._fresh_state()
        for name in sorted(expected.keys() ^ tensors.keys()):
            fault = "lacks" if name in expected else "has an unknown"
            raise StateError(f"the optimizer's state {fault} tensor {name!r}.", "It belongs to another adapter or is torn.")
        for name, tensor in tensors.items():
            if tensor.shape != expected[name].shape:
                raise StateError(
                    f"tensor {name!r} of the optimizer's state has shape {tuple(tensor.shape)}, not {tuple(expected[name].shape)}.",
                    "It belongs to another adapter.",
                )
        for name, parameter in self._parameters.items():
            moments = {m: tensors[f"{m}.{name}"].to(parameter.device, torch.float32, copy=True) for m in MOMENTS}
            self._adamw.state[parameter] = {STEP: tensors[STEP].to(torch.float32, copy=True), **moments}

    def _fresh_state(self) -> dict[str, Tensor]:
        zeros = {f"{m}.{name}": torch.zeros_like(p, requires_grad=False) for name, p in self._parameters.items() for m in MOMENTS}
        return zeros | {STEP: torch.tensor(0, dtype=torch.int64)}
