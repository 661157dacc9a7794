"""What each call of a client-driven model does to its adapter.

Calls are run by slices: a pass has one for each micro-batch, any other call one.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from plait import __version__
from plait.cluster.checkpoints import load_state
from plait.cluster.model_messages import CallDone, ForwardBackward, LoadModel, OptimStep, SaveModel
from plait.cluster.recorded_adapter import RecordedAdapter
from plait.config.base import Settings
from plait.config.task import LossSettings, OptimizerSettings
from plait.state.checkpoint import save_checkpoint
from plait.state.durable import remove_folder
from plait.state.records import list_steps, step_folder
from plait.state.retention import KEPT_LAST
from plait.state.step_record import StepRecord
from plait.training.losses import LossInputs, sequence_loss
from plait.training.training_pass import PassResult
from plait.types.datum import Datum
from plait.types.errors import ConfigError, PlaitError
from plait.types.policy import AdapterRef, PolicyVersion

Call = ForwardBackward | OptimStep | SaveModel | LoadModel
PHASE = "client"
"""Of a client-driven model's records."""
FAR_OFF = 700.0
"""A given log-probability below minus this belongs to no sampler, and its ratio to the trainer's does not fit a float."""

AnySettings = TypeVar("AnySettings", bound=Settings)


class RunningCall(Protocol):
    @property
    def num_slices_left(self) -> int: ...

    def run_slice(self) -> CallDone | None:
        """Run one slice; the result with the last. Raises what made the call fail."""
        ...


def start_call(call: Call, adapter: RecordedAdapter, tenant: str) -> RunningCall:
    """Raises PlaitError if the call can be seen to fail before it runs."""
    match call:
        case ForwardBackward():
            return _Pass(call, adapter, tenant)
        case OptimStep():
            return _Whole(lambda: _optim_step(call, adapter, tenant))
        case SaveModel():
            return _Whole(lambda: _save(call, adapter, tenant))
        case LoadModel():
            return _Whole(lambda: _load(call, adapter, tenant))


class _Whole:
    """A call that is one slice."""

    def __init__(self, run: Callable[[], CallDone]) -> None:
        self._run, self.num_slices_left = run, 1

    def run_slice(self) -> CallDone:
        self.num_slices_left = 0
        return self._run()


class _Pass:
    """Forward, and unless the call is forward only, backward."""

    def __init__(self, call: ForwardBackward, adapter: RecordedAdapter, tenant: str) -> None:
        self._call, self._adapter, self._tenant = call, adapter, tenant
        self._loss = parse_settings(LossSettings, call.loss_json, "loss_json")
        _check_logprobs(call.datums)
        loss = None if call.forward_only else self._loss
        self._training = adapter.trainer.start(call.datums, loss, every_position=True)

    @property
    def num_slices_left(self) -> int:
        return self._training.num_slices_left

    def run_slice(self) -> CallDone | None:
        next(self._training, None)
        if self._training.num_slices_left:
            return None
        result, call = self._training.result(), self._call
        metrics = _forward_metrics(call.datums, result, self._loss) if call.forward_only else _pass_metrics(result)
        return CallDone(
            call.model_id, call.seq_id, self._adapter.ref(self._tenant),
            logprobs=tuple(row.astype("<f4").tobytes() for row in result.logprobs),
            metrics=metrics,
            num_tokens=sum(len(datum.tokens) for datum in call.datums),
        )  # fmt: skip


def _pass_metrics(result: PassResult) -> dict[str, float]:
    """Sums add up over the calls that a batch was cut into; a fraction of tokens would not."""
    metrics = {"num_tokens": 0.0, **result.metrics}
    if "clip_fraction" in metrics:
        metrics["num_clipped"] = round(metrics.pop("clip_fraction") * metrics["num_tokens"])
    return metrics


def _forward_metrics(datums: Sequence[Datum], result: PassResult, loss: LossSettings) -> dict[str, float]:
    """The loss of log-probabilities that are known already."""
    sums: dict[str, list[float]] = {"loss": [], "num_tokens": []}
    for datum, logprobs_T in zip(datums, result.logprobs, strict=True):
        _, metrics = sequence_loss(torch.from_numpy(logprobs_T), _inputs(datum), loss)
        for name, value in metrics.items():
            sums.setdefault(name, []).append(float(value))
    totals = {name: math.fsum(values) for name, values in sums.items()}
    if not math.isfinite(totals["loss"]):
        raise PlaitError(f"the loss is {totals['loss']}.", "Look for log-probabilities or advantages that are not finite.")
    return result.metrics | totals


def _inputs(datum: Datum) -> LossInputs:
    def given(values: Sequence[float]) -> Tensor | None:
        return torch.tensor(values, dtype=torch.float32) if values else None

    return LossInputs(given(datum.logprobs), given(datum.advantages), given(datum.weights), None, given(datum.sequence_ratio_mask))


def _check_logprobs(datums: Sequence[Datum]) -> None:
    for index, datum in enumerate(datums):
        wrong = [value for value in datum.logprobs if not -FAR_OFF <= value < math.inf]
        if wrong:
            raise ConfigError(f"logprobs of datum {index} hold {wrong[0]}.", "Give the sampler's log-probabilities, in nats.")


def _optim_step(call: OptimStep, adapter: RecordedAdapter, tenant: str) -> CallDone:
    settings = parse_settings(OptimizerSettings, call.optimizer_json, "optimizer_json")

    def step() -> dict[str, float]:
        trainer = adapter.trainer
        return trainer.optim_step(settings, call.learning_rate) if trainer.has_gradients else trainer.skip_step()

    metrics = _new_version(adapter, call.seq_id, step)
    return CallDone(call.model_id, call.seq_id, adapter.ref(tenant), metrics=metrics)


def _load(call: LoadModel, adapter: RecordedAdapter, tenant: str) -> CallDone:
    state = load_state(Path(call.source_folder), adapter.weights, call.with_optimizer)

    def replace() -> dict[str, float]:
        adapter.weights.load(adapter.trainer, state)
        return {}

    _new_version(adapter, call.seq_id, replace)
    return CallDone(call.model_id, call.seq_id, adapter.ref(tenant))


def _save(call: SaveModel, adapter: RecordedAdapter, tenant: str) -> CallDone:
    record = adapter.record
    size_bytes = save_checkpoint(adapter.folder, record.step, Path(call.folder), call.with_optimizer)
    ref = AdapterRef(PolicyVersion(tenant, call.model_id, record.step), call.folder, record.adapter_digest)
    return CallDone(call.model_id, call.seq_id, ref, size_bytes=size_bytes)


def _new_version(adapter: RecordedAdapter, seq_id: int, change: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Change the adapter and make the result durable, or have it as it was."""
    try:
        metrics = change()
        adapter.commit(model_record(adapter.record.task, adapter.record.step + 1, seq_id, adapter.record.seed, adapter.base.digest))
    except BaseException:
        adapter.go_back()
        raise
    with contextlib.suppress(OSError):  # The version stands; what could not be removed goes with the next one.
        for old in list_steps(adapter.folder)[:-KEPT_LAST]:
            remove_folder(step_folder(adapter.folder, old))
    return metrics


def model_record(model_id: str, version: int, seq_id: int, seed: int, base_digest: str) -> StepRecord:
    return StepRecord(
        task=model_id, step=version, phase=PHASE, data_cursor=seq_id, seed=seed, base_digest=base_digest, plait_version=__version__
    )


def parse_settings(kind: type[AnySettings], text: str, field: str) -> AnySettings:
    """Raises ConfigError for settings that are not of this kind."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{field}: {where or kind.__name__}: {first['msg']}.", "Mend the settings of this call.") from error
