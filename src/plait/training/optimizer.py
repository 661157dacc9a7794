"""AdamW over one adapter's parameters, with a state that can be saved and restored bit for bit.

- Every adapter has an optimizer of its own, so no step of one can move another.
- Only `step` moves weights and moments. A policy step without any gradient calls nothing here: zero gradients are not the
  same, since under them momentum and decay would still move the weights.
- torch's functional AdamW does the arithmetic: `torch.optim.AdamW` would load torch's compiler (1 s, 70 MB) into every worker.
- The state is a flat mapping of tensors: `exp_avg.NAME`, `exp_avg_sq.NAME` (float32) and `step` (int64, steps taken).
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from plait.config.task import OptimizerSettings
from plait.types.errors import PlaitError, StateError

STEP = "step"
MOMENTS = ("exp_avg", "exp_avg_sq")
Norm = Callable[[Sequence[Tensor]], Tensor]


class AdapterOptimizer:
    """Steps `parameters` (float32 leaves, changed in place) in the order of their names."""

    def __init__(self, parameters: Mapping[str, Tensor], norm: Norm | None = None) -> None:
        """`norm` of all gradients decides on clipping; None: torch's."""
        self._norm = norm or total_norm
        self._parameters = {name: parameters[name] for name in sorted(parameters)}
        self._state = fresh_state(self._parameters)

    def step(self, gradients: Mapping[str, Tensor], settings: OptimizerSettings, learning_rate: float | None = None) -> float:
        """Take one step and return the global norm of the gradients before clipping.

        `gradients` has a tensor for every parameter; it is scaled in place if its norm exceeds `max_grad_norm` (0: never).
        `learning_rate` overrides the settings', as a schedule does. Raises PlaitError, and moves nothing, if the norm is
        not finite.
        """
        gradients_P = [gradients[name] for name in self._parameters]
        norm = self._norm(gradients_P)
        if not math.isfinite(norm.item()):
            raise PlaitError(f"the gradient's norm is {norm.item()}.", "Lower learning_rate, or look for broken rewards.")
        if settings.max_grad_norm > 0:
            _clip(gradients_P, settings.max_grad_norm, norm)
        self._apply(gradients_P, settings, settings.learning_rate if learning_rate is None else learning_rate)
        return norm.item()

    @torch.no_grad()
    def _apply(self, gradients_P: list[Tensor], settings: OptimizerSettings, learning_rate: float) -> None:
        """One update per tensor in a fixed order: bits do not depend on how a fused kernel would cut the list."""
        means, squares = ([self._state[f"{moment}.{name}"] for name in self._parameters] for moment in MOMENTS)
        steps = [self._state[STEP].to(torch.float32, copy=True) for _ in self._parameters]
        adamw(
            list(self._parameters.values()), gradients_P, means, squares, [], steps, foreach=False, fused=False, amsgrad=False,
            beta1=settings.beta1, beta2=settings.beta2, lr=learning_rate, weight_decay=settings.weight_decay,
            eps=settings.epsilon, maximize=False,
        )  # fmt: skip
        self._state[STEP] += 1

    @property
    def num_steps(self) -> int:
        """Steps taken since the start, over restarts too."""
        return int(self._state[STEP].item())

    def state_tensors(self, copy: bool = True) -> dict[str, Tensor]:
        """The whole state, on the CPU; without a copy it holds until the next step or load."""
        return {name: tensor.to("cpu", copy=copy) for name, tensor in self._state.items()}

    def give_up(self) -> dict[str, Tensor]:
        """Hand over the whole state, and hold no tensor until `take_back`."""
        state, self._state, self._parameters = self._state, {}, {}
        return state

    def take_back(self, parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Go on with these very tensors."""
        self._parameters = {name: parameters[name] for name in sorted(parameters)}
        self._state = dict(state)

    def load_state_tensors(self, tensors: Mapping[str, Tensor], copy: bool = True) -> None:
        """Replace the whole state; without a copy the tensors are this optimizer's from now on.

        Raises StateError if names or shapes are not this adapter's.
        """
        expected = self._state
        for name in sorted(expected.keys() ^ tensors.keys()):
            fault = "lacks" if name in expected else "has an unknown"
            raise StateError(f"the optimizer's state {fault} tensor {name!r}.", "It belongs to another adapter or is torn.")
        for name, tensor in tensors.items():
            if tensor.shape != expected[name].shape:
                raise StateError(
                    f"tensor {name!r} of the optimizer's state has shape {tuple(tensor.shape)}, not {tuple(expected[name].shape)}.",
                    "It belongs to another adapter.",
                )
        self._state = {STEP: tensors[STEP].to("cpu", torch.int64, copy=copy)}
        for name, parameter in self._parameters.items():
            for moment in (f"{m}.{name}" for m in MOMENTS):
                self._state[moment] = tensors[moment].to(parameter.device, torch.float32, copy=copy)


def fresh_state(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state before the first step."""
    return {
        f"{moment}.{name}": torch.zeros_like(parameter, dtype=torch.float32, requires_grad=False)
        for name, parameter in parameters.items()
        for moment in MOMENTS
    } | {STEP: torch.tensor(0, dtype=torch.int64)}


def total_norm(gradients_P: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(list(gradients_P), foreach=False)


def _clip(gradients_P: list[Tensor], max_norm: float, norm: Tensor) -> None:
    """In place, as `torch.nn.utils.clip_grads_with_norm_` does it."""
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in gradients_P:
        gradient.mul_(factor.to(gradient.device))
