"""Full-parameter training over several ranks (FSDP2): weights, gradients and moments lie in slices, a slice on each rank.

- Called by every rank of a group in the same order with the same arguments (SPMD), whatever started the ranks; the device mesh may
  have one axis (slices) or two (replicas of slices).
- Weights, gradients and moments are float32, and weights are gathered so; the arithmetic is in `dtype`. Gradients of matrices are
  never rounded to it.
- What is saved at n ranks continues at any other number. Results have the bits of `FullTrainer` at 1 and 2 ranks (`fsdp_pass`), and
  differ in rounding at others.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.optim.adamw import adamw

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.tensor_names import tensor_shapes
from plait.sharding.box import Box
from plait.sharding.torch_bytes import local_part, sharding_of
from plait.training.fsdp_model import DecoderModule
from plait.training.fsdp_norm import global_norm
from plait.training.fsdp_pass import FsdpPass
from plait.training.full_pass import ROUND_MICRO_BATCHES
from plait.training.optimizer import MOMENTS, STEP
from plait.training.training_pass import PassResult, PassSettings
from plait.types.datum import Datum
from plait.types.errors import PlaitError
from plait.types.model import ModelConfig

WEIGHT = "weight"
"""Prefix of weights in the state, as `exp_avg` and `exp_avg_sq` are of moments."""


class FsdpTrainer:
    """`weights` (full tensors, or None to load a state later) are only read where they belong to this rank's slice."""

    def __init__(
        self,
        config: ModelConfig,
        mesh: DeviceMesh,
        weights: Mapping[str, Tensor] | None = None,
        settings: PassSettings = PassSettings(),
        dtype: torch.dtype = torch.float32,
        summed_micro_batches: int = ROUND_MICRO_BATCHES,
        base: Decoder | None = None,
    ) -> None:
        """`summed_micro_batches` go into one sum of gradients over the ranks; it is raised to the number of ranks.

        `base` is the frozen base, for penalties towards it; every rank has it whole.
        """
        self.base = base
        self.config, self.mesh, self.settings = config, mesh, settings
        self.width = max(summed_micro_batches, mesh.size())
        self.group, self.rank = _whole_group(mesh), _rank_in(mesh)
        self.module = _sharded(config, mesh, dtype)
        self._parameters = self.module.named_weights()
        self._moments = {f"{m}.{n}": torch.zeros_like(p.detach()) for n, p in self._parameters.items() for m in MOMENTS}
        self._step = torch.tensor(0, dtype=torch.int64)
        self._gradients: dict[str, Tensor] = {}
        if weights is not None:
            self.take(weights.__getitem__)

    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> FsdpPass:
        """A pass to be run micro-batch by micro-batch, the same number of them on every rank; forward only if `loss` is None."""
        return FsdpPass(
            self.module, datums, loss, self.settings, self.width, self.group, self._accumulate, every_position, self.base
        )

    def forward_backward(self, datums: Sequence[Datum], loss: LossSettings, every_position: bool = False) -> PassResult:
        """Add the gradients of the datums' losses to those that wait for the step."""
        return self.start(datums, loss, every_position).result()

    def forward(self, datums: Sequence[Datum]) -> list[np.ndarray]:
        """Log-probability of each target at the datum's temperature; changes nothing."""
        return self.start(datums, None, every_position=True).result().logprobs

    @property
    def has_gradients(self) -> bool:
        return bool(self._gradients)

    @property
    def num_steps(self) -> int:
        """Steps taken since the start, over restarts too."""
        return int(self._step.item())

    def discard_gradients(self) -> None:
        self._gradients = {}

    def optim_step(self, settings: OptimizerSettings, learning_rate: float | None = None) -> dict[str, float]:
        """One AdamW step with what has been accumulated, which is used up, even if the step fails.

        Gives `grad_norm` (before clipping) and `learning_rate`. Raises PlaitError, on every rank, if there are no gradients or
        their norm is not finite.
        """
        if not self._gradients:
            raise PlaitError("no gradients wait for this step.", "Call forward_backward first, or leave the step out.")
        gradients, self._gradients = {name: local_part(g) for name, g in self._gradients.items()}, {}
        norm = global_norm(gradients, self.mesh)
        if not math.isfinite(norm):
            raise PlaitError(f"the gradient's norm is {norm}.", "Lower learning_rate, or look for broken rewards.")
        if settings.max_grad_norm > 0:
            factor = min(1.0, settings.max_grad_norm / (norm + 1e-6))
            gradients = {name: gradient.mul_(factor) for name, gradient in gradients.items()}
        rate = settings.learning_rate if learning_rate is None else learning_rate
        self._apply(gradients, settings, rate)
        return {"grad_norm": norm, "learning_rate": rate}

    @torch.no_grad()
    def take(self, full: Callable[[str], Tensor]) -> None:
        """Set each weight to this rank's slice of a full tensor, which is given by name."""
        sharding = sharding_of(self._parameters)
        for name, parameter in self._parameters.items():
            local_part(parameter).copy_(full(name)[_index(sharding.box(name, self.rank))])

    def weights(self) -> dict[str, Tensor]:
        """The weights themselves, by the names of `models.tensor_names`; `sharding.weight_sync` sends slices of them."""
        return {name: parameter.detach() for name, parameter in self._parameters.items()}

    def state(self) -> dict[str, Tensor]:
        """The tensors themselves: `weight.NAME`, moments (sharded like the weights), and `step`. Writing to them sets it."""
        weights = {f"{WEIGHT}.{name}": weight for name, weight in self.weights().items()}
        return weights | self.moments()

    def moments(self) -> dict[str, Tensor]:
        """The optimizer's share of the state: by the names of `training.optimizer`."""
        return self._moments | {STEP: self._step}

    @torch.no_grad()
    def _apply(self, gradients: Mapping[str, Tensor], settings: OptimizerSettings, learning_rate: float) -> None:
        names = list(self._parameters)
        means, squares = ([local_part(self._moments[f"{moment}.{name}"]) for name in names] for moment in MOMENTS)
        weights = [local_part(self._parameters[name]) for name in names]
        adamw(
            weights, [gradients[name] for name in names], means, squares, [],
            [self._step.to(torch.float32, copy=True) for _ in names], foreach=False, fused=False, amsgrad=False,
            beta1=settings.beta1, beta2=settings.beta2, lr=learning_rate, weight_decay=settings.weight_decay,
            eps=settings.epsilon, maximize=False,
        )  # fmt: skip
        self._step += 1

    def _accumulate(self, gradients: Mapping[str, Tensor]) -> None:
        for name, gradient in gradients.items():
            self._gradients[name] = self._gradients[name] + gradient if name in self._gradients else gradient


def _sharded(config: ModelConfig, mesh: DeviceMesh, dtype: torch.dtype) -> DecoderModule:
    """Without any weights yet, in the memory of this rank's slices alone."""
    empty = {name: torch.empty(shape, device="meta") for name, shape in tensor_shapes(config).items()}
    module = DecoderModule(config, empty, dtype, torch.device(mesh.device_type))
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)  # gathered in float32, or gradients would be rounded
    for unit in (*module.layers, module):
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    module.to_empty(device=mesh.device_type)
    assert isinstance(module, FSDPModule)
    for unit in (*module.layers, module):
        unit.set_gradient_divide_factor(1.0)  # gradients are sums over datums
        unit.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    return module


def _rank_in(mesh: DeviceMesh) -> int:
    """This rank's place in the mesh, in row-major order."""
    return int((mesh.mesh.flatten() == dist.get_rank()).nonzero().item())


def _whole_group(mesh: DeviceMesh) -> dist.ProcessGroup:
    """All ranks of the mesh. Raises PlaitError for a mesh of two axes that is not all there is."""
    if mesh.ndim == 1:
        return mesh.get_group()
    if mesh.size() != dist.get_world_size() or dist.group.WORLD is None:
        raise PlaitError(f"the mesh has {mesh.size()} of {dist.get_world_size()} ranks.", "Give a mesh of one axis, or of all.")
    return dist.group.WORLD


def _index(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)
