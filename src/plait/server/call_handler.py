"""How each kind of call is carried out: request body in, result out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import ValidationError

from plait.cluster.model_messages import METRIC_REDUCTIONS, ForwardBackward, OptimStep
from plait.config.task import OptimizerSettings
from plait.server.call import PROTOBUF, Call, CallError, CallResult, Kind
from plait.server.certificates import Certifier
from plait.server.model_runner import ModelRunner
from plait.server.saving import Saving, loaded
from plait.server.trainer_calls import TrainerCalls
from plait.server.wire.datums import TrainingInput, to_datums
from plait.server.wire.errors import WireError
from plait.server.wire.forward_backward import ForwardBackwardCall
from plait.server.wire.losses import to_loss_settings
from plait.server.wire.models.training import CreateModelResponse, OptimStepRequest, OptimStepResponse
from plait.server.wire.models.weights import LoadWeightsRequest
from plait.server.wire.requests import parse_forward_backward
from plait.server.wire.results import encode_forward_backward_output

LEAST_EPSILON = 1e-37
"""In place of an epsilon of 0, with which a parameter without a gradient would become 0 / 0."""

Run = Callable[[ModelRunner, Call], Awaitable[CallResult]]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the checks of a request need to know of the base model."""

    vocab_size: int
    max_context_tokens: int


class CallHandler:
    def __init__(self, trainer: TrainerCalls, saving: Saving, certifier: Certifier, shape: ModelShape) -> None:
        self._trainer, self._certifier, self._shape = trainer, certifier, shape
        self._runs: dict[Kind, Run] = {
            Kind.CREATE: self._create,
            Kind.FORWARD_BACKWARD: self._forward_backward,
            Kind.OPTIM_STEP: self._optim_step,
            Kind.SAVE: saving.save,
            Kind.SAVE_FOR_SAMPLER: saving.save_for_sampler,
            Kind.SAVE_EXTERNAL: saving.save_external,
            Kind.LOAD: saving.load,
        }

    async def run(self, runner: ModelRunner, call: Call) -> CallResult:
        try:
            return await self._runs[self._kind(call)](runner, call)
        except ValidationError as error:
            raise CallError(f"the request cannot be read: {error}", is_user_error=True) from error

    def _kind(self, call: Call) -> Kind:
        return Kind.CREATE if call.seq_id == 0 else call.kind

    async def _create(self, runner: ModelRunner, call: Call) -> CallResult:
        """By now it has been opened, which is all there is to do."""
        if call.kind == Kind.LOAD:
            assert runner.ref is not None
            request = LoadWeightsRequest.model_validate_json(call.payload)
            return loaded(request.path, call.model_id, runner.ref.policy.version)
        return CallResult.of_json(CreateModelResponse(model_id=call.model_id).model_dump(), version=0)

    async def _forward_backward(self, runner: ModelRunner, call: Call) -> CallResult:
        parsed = parse_forward_backward(call.payload, None)
        message, training = self._message(parsed)
        assert runner.ref is not None
        staleness = self._certifier.certify(parsed, runner.ref.policy, runner.model_id)
        done = await self._trainer.call(message)
        metrics = {f"{name}:{METRIC_REDUCTIONS[name]}": value for name, value in done.metrics.items()} | staleness
        body = encode_forward_backward_output(training.fold(done.logprobs), metrics)
        return CallResult(
            body, PROTOBUF, version=done.ref.policy.version, num_trained_tokens=done.num_tokens, device_s=done.device_s,
            has_gradients=not parsed.forward_only,
        )  # fmt: skip

    def _message(self, parsed: ForwardBackwardCall) -> tuple[ForwardBackward, TrainingInput]:
        training = to_datums(parsed, self._shape.vocab_size, self._shape.max_context_tokens)
        loss = to_loss_settings(parsed).model_dump_json()
        return ForwardBackward(parsed.model_id, parsed.seq_id, training.datums, loss, parsed.forward_only), training

    def has_gradients(self, call: Call) -> bool:
        """Would have, of a body that cannot be read."""
        try:
            return call.kind == Kind.FORWARD_BACKWARD and not parse_forward_backward(call.payload, None).forward_only
        except WireError:
            return True

    def replay_message(self, call: Call) -> ForwardBackward:
        return self._message(parse_forward_backward(call.payload, None))[0]

    def lost_result(self, call: Call, version: int) -> CallResult:
        if call.kind == Kind.LOAD:
            return loaded(LoadWeightsRequest.model_validate_json(call.payload).path, call.model_id, version)
        return CallResult.of_json(OptimStepResponse(metrics={}).model_dump(), version=version)

    async def _optim_step(self, runner: ModelRunner, call: Call) -> CallResult:
        params = OptimStepRequest.model_validate_json(call.payload).adam_params
        optimizer = OptimizerSettings(
            beta1=params.beta1, beta2=params.beta2, epsilon=max(params.eps, LEAST_EPSILON), weight_decay=params.weight_decay,
            max_grad_norm=max(0.0, params.grad_clip_norm),
        )  # fmt: skip
        done = await self._trainer.call(OptimStep(call.model_id, call.seq_id, optimizer.model_dump_json(), params.learning_rate))
        runner.ref = done.ref
        response = OptimStepResponse(metrics=done.metrics)
        return CallResult.of_json(response.model_dump(), version=done.ref.policy.version, device_s=done.device_s)
