"""The adapter that a task begins from."""

from pathlib import Path

from plait.cluster.trained_weights import HeldState, LoraWeights, TrainedWeights, check_shape
from plait.lora.peft_config import parse_peft_config
from plait.lora.peft_format import from_peft_tensors
from plait.models.hf_config import read_json
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE
from plait.state.start_point import read_start
from plait.state.tensor_file import read_tensors
from plait.training.optimizer import fresh_state
from plait.types.errors import AdapterError


def start_state(folder: Path, weights: TrainedWeights) -> HeldState:
    """Of the copy in `folder`, verified, in float32, with moments that start anew.

    Raises AdapterError naming what does not fit the base or the task's shape, StateError if the copy is damaged.
    """
    assert isinstance(weights, LoraWeights), "checked with the settings"
    start = read_start(folder)
    if start.base_digest not in ("", weights.base.digest):
        raise AdapterError(
            f"{start.source} was trained on base {start.base_digest}; this task is on base {weights.base.digest}.",
            "Name an adapter of this base, or the model that it was trained on.",
        )
    check_shape(parse_peft_config(read_json(folder / ADAPTER_CONFIG_FILE)), weights.lora)
    stored = read_tensors(folder / ADAPTER_FILE, start.digest)
    tensors = from_peft_tensors(stored, weights.base.decoder.config, weights.lora)
    return HeldState(tensors, fresh_state(tensors))
