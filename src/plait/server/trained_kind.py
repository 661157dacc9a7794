"""Whether a client's model trains an adapter or all weights: asked for in its `user_metadata`, kept with its shape.

The SDK can only create adapters, so who wants all weights trained says so in `user_metadata={"plait_training": "full"}`.
"""

from collections.abc import Mapping
from typing import Any

from plait.server.errors import ServiceError
from plait.types.policy import Training

METADATA_KEY = "plait_training"
SHAPE_KEY = "training"
NOTE = "All weights are trained. The rank and the layers that were asked for have no effect."


def training_asked(metadata: Mapping[str, Any] | None) -> Training | None:
    """None: nothing is said. Raises ServiceError for another value."""
    value = (metadata or {}).get(METADATA_KEY)
    if value is None:
        return None
    if value not in ("lora", "full"):
        raise ServiceError(f"user_metadata.{METADATA_KEY} is {value!r}.", 'Give "lora", "full", or nothing.')
    return "full" if value == "full" else "lora"


def training_of(shape: Mapping[str, Any]) -> Training:
    """Of the `lora` column of a model or checkpoint."""
    return "full" if shape.get(SHAPE_KEY) == "full" else "lora"


def is_lora(shape: Mapping[str, Any]) -> bool:
    return training_of(shape) == "lora"


def rank_of(shape: Mapping[str, Any]) -> int | None:
    return shape["rank"] if is_lora(shape) else None
