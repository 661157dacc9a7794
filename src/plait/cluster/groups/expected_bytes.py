"""What a deployment is expected to take of a device, before it was ever there. Torch-free."""

import math
from pathlib import Path

from plait.cluster.messages import ROLLOUT, Configure
from plait.config.explain import BYTES_PER_VALUE
from plait.models.hf_config import read_config
from plait.models.tensor_names import tensor_shapes


def expected_bytes(configuration: Configure) -> int:
    """Weights and cache; what is trained comes later. Raises ModelError if there is no such model."""
    config, value_bytes = read_config(Path(configuration.model_path)), BYTES_PER_VALUE[configuration.dtype]
    num_bytes = value_bytes * sum(math.prod(shape) for shape in tensor_shapes(config).values())
    if ROLLOUT in configuration.roles:
        num_tokens = configuration.slot_tokens + configuration.pool_tokens
        num_bytes += num_tokens * config.cache_bytes_per_token(value_bytes)
    return num_bytes
