"""How much room the weights take that a message opens for training, or a version that is rolled out."""

import json
import math
from pathlib import Path

from pydantic import ValidationError

from plait.cluster.messages import OpenTask, ToWorker
from plait.cluster.model_messages import OpenModel
from plait.config.task import TaskSettings
from plait.lora.fused import RANK_MULTIPLE
from plait.lora.modules import adapter_shapes
from plait.lora.peft_config import parse_peft_config
from plait.models.tensor_names import tensor_shapes
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE, holds_model
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig
from plait.types.policy import AdapterRef, Training

BYTES_PER_PARAMETER = 16
"""Float32 parameter, two moments, gradient."""
FLOAT32_BYTES = 4
GRADIENT_BYTES = 4
"""Of a pass where all weights are trained, beside those that wait."""


def opening_bytes(message: ToWorker, config: ModelConfig, value_bytes: int) -> int:
    """What the weights that the message opens may come to need on the device; 0 if it opens none, or cannot.

    `value_bytes`: of one value in the model's dtype, in which the trainer also has them where all weights are trained.
    """
    values, is_full = opened_values(message, config)
    return values * (BYTES_PER_PARAMETER + (GRADIENT_BYTES + value_bytes if is_full else 0))


def opened_values(message: ToWorker, config: ModelConfig) -> tuple[int, bool]:
    """How many values are to be trained, and whether they are all weights."""
    match message:
        case OpenTask(settings_json=text):
            training, lora = _of_task(text)
        case OpenModel(training=training, lora=lora):
            pass
        case _:
            return 0, False
    if training == "full":
        return sum(math.prod(shape) for shape in tensor_shapes(config).values()), True
    try:
        shapes = adapter_shapes(config, lora) if lora is not None else {}
    except AdapterError:
        return 0, False  # Opening it tells why.
    return sum(math.prod(shape) for shape in shapes.values()), False


def _of_task(text: str) -> tuple[Training, LoraConfig | None]:
    try:
        settings = TaskSettings.model_validate_json(text)
    except ValidationError:
        return "lora", None
    lora = settings.lora
    return settings.training, LoraConfig(lora.rank, lora.alpha, lora.target_modules, lora.seed)


def version_bytes(ref: AdapterRef, config: ModelConfig, value_bytes: int, is_host: bool) -> int:
    """What a version takes on the device when it is loaded for rollouts; 0 if it cannot be read.

    `value_bytes`: of one value in the model's dtype. Unless the device is the host's own memory (`is_host`), what was read is there
    too until it is laid out.
    """
    folder = Path(ref.path)
    if holds_model(folder):
        values = sum(math.prod(shape) for shape in tensor_shapes(config).values())
        unembedding = config.vocab_size * config.hidden_size if config.tied_embeddings else 0
        return value_bytes * (values + (unembedding if is_host else values))
    try:
        read_bytes = (folder / ADAPTER_FILE).stat().st_size
        rank = parse_peft_config(json.loads((folder / ADAPTER_CONFIG_FILE).read_text())).rank
    except (OSError, ValueError, AdapterError):
        return 0  # Loading it tells why.
    padded_values = read_bytes // FLOAT32_BYTES * (rank + -rank % RANK_MULTIPLE) // rank
    return padded_values * value_bytes + (0 if is_host else read_bytes)
