"""One forward, or forward and backward, call over datums, run slice by slice.

- `next(training_pass)` runs one micro-batch, so that a caller can let other tasks' calls go in between.
- Gradients are the pass's own until it is complete; a pass that fails or is dropped leaves no trace in its trainer.
- Gradients are sums over datums in float32; the cut into micro-batches changes nothing but rounding.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from plait.config.task import LossSettings
from plait.lora.mix import FusedAdapter, SingleLora
from plait.models.decoder import Decoder
from plait.models.kernels import pad_rows
from plait.training.counted import CountedRows, counted_rows
from plait.training.head import chunked_logprobs
from plait.training.losses import LossInputs, sequence_loss
from plait.training.packed_attention import PackedAttention
from plait.training.packing import PackedBatch, pack
from plait.training.pass_metrics import PassMetrics
from plait.types.datum import Datum
from plait.types.errors import ConfigError, PlaitError


@dataclass(frozen=True, slots=True)
class PassSettings:
    """How a pass runs; none of it changes a result beyond rounding."""

    micro_batch_tokens: int = 2048
    checkpoint_layers: bool = False


@dataclass(frozen=True, slots=True)
class PassResult:
    """`logprobs[i]` has a float32 for each position of datum i, NaN where no loss needed it.

    `metrics` are described in `training.pass_metrics`; what was not measured is absent.
    """

    logprobs: list[np.ndarray]
    metrics: dict[str, float]


class _State(Enum):
    OPEN = "open"
    COMPLETE = "complete"
    FAILED = "failed"


class TrainingPass:
    """An iterator over its micro-batches; `result()` after the last.

    `loss` None is a forward pass. `fuse` gives the adapter in the decoder's layout, differentiable in `parameters`; None: the
    decoder itself is. `base` is the frozen base, for penalties, where it is not `decoder` without the adapter. `on_complete`
    receives the sum of gradients, once, unless there were none. `every_position` asks for log-probabilities also where no loss
    needs them.
    """

    def __init__(
        self,
        decoder: Decoder,
        parameters: Mapping[str, Tensor],
        fuse: Callable[[], FusedAdapter] | None,
        datums: Sequence[Datum],
        loss: LossSettings | None,
        settings: PassSettings,
        on_complete: Callable[[Mapping[str, Tensor]], None],
        every_position: bool = False,
        base: Decoder | None = None,
    ) -> None:
        self._decoder, self._parameters, self._fuse = decoder, parameters, fuse
        self._base = base or decoder
        self._datums, self._loss, self._settings, self._on_complete = datums, loss, settings, on_complete
        self._every_position = every_position
        _check_tokens(datums, decoder.config.vocab_size)
        self._waiting = pack(datums, settings.micro_batch_tokens)
        self._state = _State.OPEN
        self._gradients: dict[str, Tensor] = {}
        self._logprobs = [np.full(len(datum.tokens), np.nan, np.float32) for datum in datums]
        self._metrics = PassMetrics()

    @property
    def num_slices_left(self) -> int:
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether there is more to do: not so after the last slice, nor after one that failed."""
        return self._state is _State.OPEN

    def __iter__(self) -> "TrainingPass":
        return self

    def __next__(self) -> None:
        if not self.is_open:
            raise StopIteration
        try:
            if self._waiting:
                self._run(self._waiting.pop(0))
            if not self._waiting:
                self._complete()
        except BaseException:
            self._state = _State.FAILED
            raise

    def result(self) -> PassResult:
        """Run what is left, and give the result. Raises PlaitError if the loss is not finite or a slice failed before."""
        for _ in self:
            pass
        if self._state is _State.FAILED:
            raise PlaitError("a slice of this pass has failed.", "Start a new pass.")
        return PassResult(self._logprobs, self._metrics.summary(with_loss=self._loss is not None))

    def _complete(self) -> None:
        if not math.isfinite(self._metrics.loss):
            raise PlaitError(f"the loss is {self._metrics.loss}.", "Look for log-probabilities or advantages that are not finite.")
        if self._gradients:
            self._on_complete(self._gradients)
        self._state = _State.COMPLETE

    def _run(self, batch: PackedBatch) -> None:
        counted = counted_rows(batch, self._datums, self._every_position, self._decoder.device)
        with torch.set_grad_enabled(self._loss is not None):
            logprobs_N = self._score(self._decoder, batch, counted, SingleLora(self._fuse()) if self._fuse is not None else None)
        if self._loss is not None and logprobs_N.requires_grad:
            self._backward(self._sum_losses(self._loss, batch, counted, logprobs_N))
        self._keep(counted, logprobs_N.detach())

    def _score(self, decoder: Decoder, batch: PackedBatch, counted: CountedRows, lora: SingleLora | None) -> Tensor:
        """Log-probabilities [N] of the counted pairs."""
        device = decoder.device
        attention = PackedAttention(batch, decoder.config.num_heads // decoder.config.num_kv_heads, decoder.dtype, device)
        # Rows are filled up here, once, or every linear layer would do it for itself, and again on the way back.
        tokens_R, positions_R = (
            pad_rows(torch.tensor(values, device=device)[:, None])[:, 0] for values in (batch.tokens_R, batch.positions_R)
        )
        checkpoint_layers = self._settings.checkpoint_layers and torch.is_grad_enabled()
        hidden_RE = decoder.forward(tokens_R, positions_R, attention, lora, checkpoint_layers)
        hidden_ME = hidden_RE.index_select(0, counted.rows_M)
        return counted.spread(chunked_logprobs(decoder, lora, hidden_ME, counted.targets_M, counted.temperatures_M))

    def _sum_losses(self, loss: LossSettings, batch: PackedBatch, counted: CountedRows, logprobs_N: Tensor) -> Tensor:
        base_N = self._base_logprobs(batch, counted) if loss.kl_to_base > 0 else None
        bases = base_N.split(counted.lengths) if base_N is not None else [None] * len(counted.members)
        total = torch.zeros((), device=logprobs_N.device)
        for member, positions, logprobs_T, base_T in zip(
            counted.members, counted.positions, logprobs_N.split(counted.lengths), bases, strict=True
        ):
            part, metrics = sequence_loss(logprobs_T, _inputs(self._datums[member], positions, base_T, logprobs_T), loss)
            total = total + part
            self._metrics.add(metrics)
        return total

    @torch.no_grad()
    def _base_logprobs(self, batch: PackedBatch, counted: CountedRows) -> Tensor:
        return self._score(self._base, batch, counted, None)

    def _backward(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True, materialize_grads=True)
        for name, gradient in zip(self._parameters, gradients, strict=True):
            if name in self._gradients:
                self._gradients[name] += gradient
            else:
                self._gradients[name] = gradient

    def _keep(self, counted: CountedRows, logprobs_N: Tensor) -> None:
        parts = logprobs_N.cpu().split(counted.lengths)
        for member, positions, logprobs_T in zip(counted.members, counted.positions, parts, strict=True):
            self._logprobs[member][list(positions)] = logprobs_T.numpy()
            self._metrics.compare(self._datums[member], self._logprobs[member])


def _check_tokens(datums: Sequence[Datum], vocab_size: int) -> None:
    for index, datum in enumerate(datums):
        for field in ("tokens", "target_tokens"):
            wrong = [token for token in getattr(datum, field) if not 0 <= token < vocab_size]
            if wrong:
                raise ConfigError(
                    f"{field} of datum {index} holds {wrong[0]}; the model has ids 0 to {vocab_size - 1}.", "Tokenise anew."
                )


def _inputs(datum: Datum, positions: Sequence[int], base_T: Tensor | None, like: Tensor) -> LossInputs:
    """The datum's fields at `positions`; an empty field is absent."""

    def at(values: Sequence[float]) -> Tensor | None:
        return torch.tensor([values[t] for t in positions], dtype=like.dtype, device=like.device) if values else None

    mask_T = at(datum.sequence_ratio_mask)
    return LossInputs(at(datum.logprobs), at(datum.advantages), at(datum.weights), base_T, mask_T)
