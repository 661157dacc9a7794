"""Which linears an adapter may target, and the shapes of its tensors. Torch-free."""

from plait.models.tensor_names import projection_shapes
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

UNEMBEDDING = "lm_head"


def module_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """[out, in] of each kind of target module."""
    return projection_shapes(config) | {UNEMBEDDING: (config.vocab_size, config.hidden_size)}


def target_paths(config: ModelConfig, lora: LoraConfig) -> dict[str, tuple[int, int]]:
    """[out, in] of every module that the adapter adds to: `layers.0.q_proj`, ..., `lm_head`.

    Raises `AdapterError` for an unknown or repeated module, or none at all.
    """
    shapes = module_shapes(config)
    _check_targets(lora, shapes)
    layered = [module for module in projection_shapes(config) if module in lora.target_modules]
    paths = {f"layers.{layer}.{module}": shapes[module] for layer in range(config.num_layers) for module in layered}
    return paths | ({UNEMBEDDING: shapes[UNEMBEDDING]} if UNEMBEDDING in lora.target_modules else {})


def adapter_shapes(config: ModelConfig, lora: LoraConfig) -> dict[str, tuple[int, int]]:
    """Shape of every tensor of an adapter: `PATH.A` [rank, in], `PATH.B` [out, rank]."""
    shapes: dict[str, tuple[int, int]] = {}
    for path, (num_out, num_in) in target_paths(config, lora).items():
        shapes[f"{path}.A"] = (lora.rank, num_in)
        shapes[f"{path}.B"] = (num_out, lora.rank)
    return shapes


def _check_targets(lora: LoraConfig, shapes: dict[str, tuple[int, int]]) -> None:
    if lora.rank < 1:
        raise AdapterError(f"rank is {lora.rank}.", "It must be at least 1.")
    if not lora.target_modules:
        raise AdapterError("target_modules is empty.", f"Name some of {', '.join(shapes)}.")
    unknown = [module for module in lora.target_modules if module not in shapes]
    if unknown:
        raise AdapterError(f"target_modules has {unknown[0]!r}, which the model does not have.", f"It has {', '.join(shapes)}.")
    if len(set(lora.target_modules)) != len(lora.target_modules):
        raise AdapterError(f"target_modules repeats a module: {', '.join(lora.target_modules)}.", "Name each once.")
