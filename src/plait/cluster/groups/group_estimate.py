"""About what deployments of multiplexed workers take, from the settings and the shapes of their models. Pure, torch-free.

Left out is what only the worker knows: second copies of weights in float32, ranks that are padded, versions of adapters.
"""

import math
from collections.abc import Iterator, Mapping

from plait.cluster.groups.room_below import Occupant, homeless_bytes
from plait.config.explain import BYTES_PER_VALUE
from plait.config.run import RunSettings
from plait.config.task_sizes import count_adapter_parameters
from plait.models.tensor_names import tensor_shapes
from plait.types.model import ModelConfig

TRAINED_BYTES, FULL_BYTES = 16, 4
"""Float32 parameter, two moments, gradient; and the gradient of a pass where all weights are trained."""


def group_shortages(settings: RunSettings, models: Mapping[str, ModelConfig]) -> list[str]:
    """What does not fit, by the names of settings. `models`: shapes of the base models in use, by name."""
    workers = settings.workers
    if not workers.is_multiplexed or workers.device_bytes is None:
        return []
    found_in = {name: occupants(settings.of_model(name), model) for name, model in models.items()}
    everybody = {
        f"{name}/{role}": one
        for name, roles in found_in.items()
        for role, one in roles.items()
        if role == "train" or workers.layout == "multiplexed"
    }
    bases = {settings.of_model(name).model.path: _base_bytes(settings.of_model(name), model) for name, model in models.items()}
    found = list(_too_large(everybody, workers.device_bytes))
    below_bytes = None if workers.host_bytes is None else workers.host_bytes + workers.disk_bytes
    lacking = homeless_bytes(list(everybody.values()), bases, workers.device_bytes, below_bytes)
    if lacking and not found and workers.groups == 1:  # with several nobody knows yet who will be where
        found.append(
            f"workers.host_bytes = {workers.host_bytes} and workers.disk_bytes = {workers.disk_bytes} have no place for about "
            f"{lacking} bytes while another deployment has the device: raise one of them"
        )
    return found


def _too_large(everybody: Mapping[str, Occupant], device_bytes: int) -> Iterator[str]:
    remedies = {"rollout": "lower engine.slot_tokens or engine.pool_tokens", "train": "train fewer tasks on this model at once"}
    for name, occupant in everybody.items():
        if occupant.on_device > device_bytes:
            remedy = remedies[name.rpartition("/")[2]]
            yield (
                f"workers.device_bytes = {device_bytes} has no room for {name}, which takes about {occupant.on_device} bytes: "
                f"raise it, or {remedy}"
            )


def occupants(settings: RunSettings, model: ModelConfig) -> dict[str, Occupant]:
    """By role; engines beyond the first are left out."""
    value_bytes, weights = BYTES_PER_VALUE[settings.model.dtype], _base_bytes(settings, model)
    full = [task for task in settings.tasks if task.training == "full"]
    adapters = sum(count_adapter_parameters(task.lora, model) for task in settings.tasks if task.training == "lora")
    full_values = len(full) * (weights // value_bytes)
    trained_bytes, full_bytes = TRAINED_BYTES * (adapters + full_values), full_values * (FULL_BYTES + value_bytes)
    tokens = settings.engine.slot_tokens + settings.engine.pool_tokens
    cache_bytes = tokens * model.cache_bytes_per_token(value_bytes)
    version_bytes = weights if full else adapters * value_bytes // max(1, len(settings.tasks))
    base, embedding = settings.model.path, model.vocab_size * model.hidden_size * value_bytes
    laid_out = weights + _staging_bytes(model, value_bytes)
    return {
        "rollout": Occupant(laid_out + cache_bytes + version_bytes, 0, base, embedding),
        "train": Occupant(laid_out + trained_bytes + full_bytes, trained_bytes, base, embedding),
    }


def _base_bytes(settings: RunSettings, model: ModelConfig) -> int:
    return BYTES_PER_VALUE[settings.model.dtype] * sum(math.prod(shape) for shape in tensor_shapes(model).values())


def _staging_bytes(model: ModelConfig, value_bytes: int) -> int:
    """Of a layer, while it is laid out."""
    layer = sum(math.prod(shape) for name, shape in tensor_shapes(model).items() if name.startswith("layers.0."))
    return layer * value_bytes
