"""The shape of one adapter."""

import msgspec


class LoraConfig(msgspec.Struct, frozen=True):
    """The adapter adds `alpha / rank * B A x` to each target module. It travels with the weights."""

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    seed: int = 0

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank
