"""Room for tasks and models that are opened: how much, and the answer where there is none. Torch-free."""

import math

from pydantic import ValidationError

from plait.cluster.messages import FromWorker, JobFailed, OpenTask, ToWorker
from plait.cluster.model_messages import OPENING, CallFailed, OpenModel
from plait.config.task import TaskSettings
from plait.lora.modules import adapter_shapes
from plait.models.tensor_names import tensor_shapes
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig
from plait.types.policy import Training

BYTES_PER_PARAMETER = 16
"""Float32 parameter, two moments, gradient."""
MORE_BYTES_PER_WEIGHT = 4
"""Where all weights are trained: the gradient of one pass, besides what is computed with."""


def opening_bytes(message: ToWorker, config: ModelConfig, weight_bytes: int) -> int:
    """What training that the message opens may come to need on the device; 0 if it opens none, or cannot. `weight_bytes`: of one
    value of the base, as it is computed with."""
    match message:
        case OpenTask(settings_json=text):
            training, lora = _task_training(text)
        case OpenModel(lora=lora, training=training):
            pass
        case _:
            return 0
    if training == "full":
        values = sum(math.prod(shape) for shape in tensor_shapes(config).values())
        return values * (BYTES_PER_PARAMETER + MORE_BYTES_PER_WEIGHT + weight_bytes)
    try:
        shapes = adapter_shapes(config, lora) if lora is not None else {}
    except AdapterError:
        return 0  # Opening it tells why.
    return BYTES_PER_PARAMETER * sum(math.prod(shape) for shape in shapes.values())


def _task_training(text: str) -> tuple[Training, LoraConfig | None]:
    try:
        settings = TaskSettings.model_validate_json(text)
    except ValidationError:
        return "lora", None
    lora = settings.lora
    return settings.training, LoraConfig(lora.rank, lora.alpha, lora.target_modules, lora.seed)


def refusal(message: ToWorker, num_bytes: int, device_bytes: int) -> FromWorker:
    """The answer to an opening message for which the device has no room."""
    error = f"{num_bytes} bytes do not fit on the device beside what is open: workers.device_bytes is {device_bytes}. Close others."
    if isinstance(message, OpenModel):
        return CallFailed(message.model_id, OPENING, error, is_user_error=False)
    assert isinstance(message, OpenTask)
    return JobFailed(message.key or TaskSettings.model_validate_json(message.settings_json).name, error)
