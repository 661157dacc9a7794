"""The tensors of the adapter that a task begins from."""

from pathlib import Path

from plait.cluster.trained_weights import LoraWeights, Tensors, TrainedWeights, check_shape
from plait.lora.peft_config import parse_peft_config
from plait.lora.peft_format import from_peft_tensors
from plait.models.hf_config import read_json
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE
from plait.state.start_point import read_start
from plait.state.tensor_file import read_tensors
from plait.types.errors import AdapterError


def start_tensors(folder: Path, weights: TrainedWeights) -> Tensors:
    """Of the copy in `folder`, verified, in float32.

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
    return from_peft_tensors(stored, weights.base.decoder.config, weights.lora)
