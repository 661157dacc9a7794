"""Taking an adapter's state from a checkpoint that another model, or the same one, has saved."""

from pathlib import Path

from plait.cluster.recorded_adapter import AdapterBase, AdapterState
from plait.lora.peft_config import parse_peft_config
from plait.state.checkpoint import has_optimizer, read_checkpoint, read_checkpoint_adapter, read_checkpoint_optimizer
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig


def load_state(folder: Path, base: AdapterBase, lora: LoraConfig, with_optimizer: bool) -> AdapterState:
    """Tensors and moments (fresh ones unless `with_optimizer`) of the checkpoint in `folder`.

    Raises AdapterError naming what does not fit this base and adapter, StateError if a file is missing or damaged.
    """
    record = read_checkpoint(folder)
    if record.base_digest != base.digest:
        raise AdapterError(
            f"the checkpoint was trained on base {record.base_digest}; this model is on base {base.digest}.",
            "Load it into a model of its own base.",
        )
    stored, config = read_checkpoint_adapter(folder, record)
    _check_shape(parse_peft_config(config), lora)
    tensors = base.from_peft(stored, lora)
    if not with_optimizer:
        return base.fresh_state(lora, tensors)
    if not has_optimizer(folder):
        raise AdapterError("the checkpoint has no optimizer state.", "Load it without, or save one for training.")
    return tensors, read_checkpoint_optimizer(folder, record)


def _check_shape(saved: LoraConfig, wanted: LoraConfig) -> None:
    for field in ("rank", "alpha", "target_modules"):
        found, expected = getattr(saved, field), getattr(wanted, field)
        if field == "target_modules":
            found, expected = tuple(sorted(found)), tuple(sorted(expected))
        if found != expected:
            raise AdapterError(f"the checkpoint has {field} {found}; this model has {expected}.", "Make a model of its shape.")
