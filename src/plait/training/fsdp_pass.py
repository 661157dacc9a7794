"""A pass of a model that is sharded over ranks: each rank runs its share of the micro-batches, all ranks give the same result.

- Micro-batches go in rounds of `width`, of which each of the n ranks runs width / n; a round's gradients are summed, then added to
  those of earlier rounds. So the order of sums does not depend on n where a round has two: x + y is y + x.
- FSDP gathers parameters in every micro-batch, on all ranks at once: a rank without one left runs another for nothing.
- Losses and log-probabilities of all ranks are gathered at the end; the loss is summed exactly, in whatever order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from plait.config.task import LossSettings
from plait.models.decoder import Decoder
from plait.models.kernels import pad_rows
from plait.training.counted import CountedRows, counted_rows
from plait.training.datums import counted_positions
from plait.training.fsdp_model import DecoderModule
from plait.training.packed_attention import PackedAttention
from plait.training.packing import PackedBatch
from plait.training.training_pass import PassSettings, TrainingPass
from plait.types.datum import Datum
from plait.types.errors import ConfigError


class FsdpPass(TrainingPass):
    """As `TrainingPass`, called by every rank of `group` with the same datums; `next` runs one of this rank's micro-batches."""

    def __init__(
        self,
        module: DecoderModule,
        datums: Sequence[Datum],
        loss: LossSettings | None,
        settings: PassSettings,
        width: int,
        group: dist.ProcessGroup | None,
        on_complete: Callable[[Mapping[str, Tensor]], None],
        every_position: bool = False,
        base: Decoder | None = None,
    ) -> None:
        """`base` is the frozen base, whole on each rank, for penalties towards it."""
        _check_loss(loss, base)
        super().__init__(module.view, module.named_weights(), None, datums, loss, settings, on_complete, every_position, base)
        self._has_gradients = loss is not None and (every_position or any(map(counted_positions, datums)))
        self._module, self._group = module, group
        self._rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
        self._rounds = [self._waiting[i : i + width] for i in range(0, len(self._waiting), width)]
        self._waiting = [batch for round_ in self._rounds for batch in _share(round_, self._rank, num_ranks)]
        self._num_left_in_round = [-(-len(round_) // num_ranks) for round_ in self._rounds]
        self._num_own = [len(round_[self._rank :: num_ranks]) for round_ in self._rounds]
        for parameter in self._parameters.values():
            parameter.grad = None

    def _run(self, batch: PackedBatch) -> None:
        is_own, is_last = self._turn()
        assert isinstance(self._module, FSDPModule)
        self._module.set_requires_gradient_sync(is_last)
        counted = counted_rows(batch, self._datums, self._every_position, self._decoder.device)
        is_own = is_own and len(counted.rows_M) > 0
        with torch.set_grad_enabled(self._loss is not None):
            logprobs_N = self._sharded_score(batch, counted if is_own else _one_row(counted))
        if self._loss is not None and is_own:
            self._sum_losses(self._loss, batch, counted, logprobs_N).backward()
        elif self._loss is not None:
            (0.0 * logprobs_N.sum()).backward()
        if is_own:
            self._keep(counted, logprobs_N.detach())

    def _turn(self) -> tuple[bool, bool]:
        """Whether the next micro-batch counts for this rank, and whether it is the last of its round here."""
        while not self._num_left_in_round[0]:
            self._num_left_in_round.pop(0)
            self._num_own.pop(0)
        self._num_left_in_round[0] -= 1
        self._num_own[0] -= 1
        return self._num_own[0] >= 0, self._num_left_in_round[0] == 0

    def _sharded_score(self, batch: PackedBatch, counted: CountedRows) -> Tensor:
        """Log-probabilities [N] of the counted pairs. Collective."""
        view = self._module.view
        attention = PackedAttention(batch, view.config.num_heads // view.config.num_kv_heads, view.dtype, view.device)
        tokens_R, positions_R = (
            pad_rows(torch.tensor(values, device=view.device)[:, None])[:, 0] for values in (batch.tokens_R, batch.positions_R)
        )
        self._module.checkpoint_layers = self._settings.checkpoint_layers and torch.is_grad_enabled()
        return counted.spread(
            self._module(tokens_R, positions_R, attention, counted.rows_M, counted.targets_M, counted.temperatures_M)
        )

    def _complete(self) -> None:
        self._gather_results()
        if self._has_gradients:
            self._gradients = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        for parameter in self._parameters.values():
            parameter.grad = None
        super()._complete()

    def _gather_results(self) -> None:
        own = {i: row for i, row in enumerate(self._logprobs) if not np.isnan(row).all()}
        parts: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(parts, (own, self._metrics), group=self._group)
        self._metrics = parts[0][1]
        for rows, metrics in parts:
            for index, row in rows.items():
                self._logprobs[index] = row
            if metrics is not self._metrics:
                self._metrics.merge(metrics)


def _share(round_: Sequence[PackedBatch], rank: int, num_ranks: int) -> list[PackedBatch]:
    """The rank's micro-batches of a round, filled up to the number of the first rank's with the round's first."""
    own, most = list(round_[rank::num_ranks]), -(-len(round_) // num_ranks)
    return own + [round_[0]] * (most - len(own))


def _one_row(counted: CountedRows) -> CountedRows:
    """A single pair in place of those that do not count here, which may be none."""
    one, device = torch.zeros(1, dtype=torch.long), counted.rows_M.device
    return replace(
        counted, rows_M=one.to(device), targets_M=one.to(device), temperatures_M=torch.ones(1, device=device), pairs_N=None
    )


def _check_loss(loss: LossSettings | None, base: Decoder | None) -> None:
    if loss is not None and loss.kl_to_base > 0 and base is None:
        raise ConfigError(f"kl_to_base is {loss.kl_to_base}, and there is no base to compare with.", "Give one, or set it to 0.")
