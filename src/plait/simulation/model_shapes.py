"""Models as costs see them: `data/models.toml` has those that are known by name."""

import msgspec

from plait.simulation.catalogue import look_up


class ModelShape(msgspec.Struct, frozen=True):
    """Numbers of a decoder, dense or a mixture of experts."""

    name: str
    num_parameters: float
    num_layers: int
    hidden_size: int
    query_width: int
    """All query heads together."""
    kv_width: int
    """Numbers that a layer caches for a token."""
    vocab_size: int
    num_active_parameters: float = 0.0
    """That one token goes through; 0: all."""
    experts: int = 0
    """Of a layer; 0: it is dense."""
    experts_active: int = 0
    bytes_per_parameter: float = 2.0

    @property
    def active_parameters(self) -> float:
        return self.num_active_parameters or self.num_parameters

    @property
    def weight_bytes(self) -> float:
        return self.num_parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> float:
        return self.num_layers * self.kv_width * self.bytes_per_parameter

    @property
    def expert_parameters(self) -> float:
        """Of all experts: what is left when a token's share of them is taken from both counts."""
        if not self.experts:
            return 0.0
        unused = 1 - self.experts_active / self.experts
        return (self.num_parameters - self.active_parameters) / unused

    def touched_parameters(self, num_tokens: int) -> float:
        """That a step of so many tokens reads, where each token takes experts at random."""
        if not self.experts:
            return self.num_parameters
        untouched = (1 - self.experts_active / self.experts) ** num_tokens
        return self.num_parameters - self.expert_parameters * untouched


def model_shape(name: str, field: str = "model") -> ModelShape:
    """Raises ConfigError naming `field` for an unknown one."""
    return look_up("models", ModelShape, name, field)
