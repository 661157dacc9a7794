"""Taking a policy's state from a checkpoint that another model, or the same one, has saved."""

from pathlib import Path

from plait.cluster.trained_weights import PolicyState, TrainedWeights
from plait.state.checkpoint import has_optimizer, read_checkpoint
from plait.types.errors import AdapterError


def load_state(folder: Path, weights: TrainedWeights, with_optimizer: bool) -> PolicyState:
    """Tensors and moments (fresh ones unless `with_optimizer`) of the checkpoint in `folder`.

    Raises AdapterError naming what does not fit this base and policy, StateError if a file is missing or damaged.
    """
    record = read_checkpoint(folder)
    if record.base_digest != weights.base.digest:
        raise AdapterError(
            f"the checkpoint was trained on base {record.base_digest}; this model is on base {weights.base.digest}.",
            "Load it into a model of its own base.",
        )
    state = weights.read(folder, record, with_optimizer and has_optimizer(folder))
    if with_optimizer and not has_optimizer(folder):
        raise AdapterError("the checkpoint has no optimizer state.", "Load it without, or save one for training.")
    return state
