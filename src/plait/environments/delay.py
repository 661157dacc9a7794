"""Artificial waits that stand for slow verifiers and tools. They are waited for in the controller and hold up no process."""

import math
import random

from plait.config.environments import DelaySettings
from plait.types.seeds import derive_seed


def delay_s(settings: DelaySettings, seed: int, example_id: str, sample_index: int, turn: int) -> float:
    """Seconds to wait in this turn; the same for the same arguments. `long_tailed` is log-normal with mean `mean_s`."""
    if settings.kind == "none" or settings.mean_s == 0:
        return 0.0
    if settings.kind == "fixed":
        return settings.mean_s
    random_state = random.Random(derive_seed("delay", seed, example_id, sample_index, turn))
    return random_state.lognormvariate(math.log(settings.mean_s) - settings.sigma**2 / 2, settings.sigma)
