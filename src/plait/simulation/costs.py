"""What each call of a model takes, by the roofline of its devices.

A step takes the longer of its arithmetic and of its reading of weights, plus the reading of caches, plus what does not overlap:
a latency for each layer and, over several devices, two all-reduces a layer. (Williams, Waterman, Patterson, "Roofline", CACM 2009;
Pope et al., "Efficiently Scaling Transformer Inference", arXiv 2211.05102, section 3.)
"""

from typing import Protocol

import msgspec

from plait.simulation.hardware import Accelerator
from plait.simulation.model_shapes import ModelShape


class Efficiency(msgspec.Struct, frozen=True):
    """Shares of the specification that well-made software reaches. Defaults are of the size that public measurements report:

    decoding at 70-85 % of the memory's rate, long prefills at half to two thirds of the arithmetic, training at 35-45 %
    (PaLM, arXiv 2204.02311, defines that share).
    """

    memory: float = 0.8
    arithmetic: float = 0.6
    training: float = 0.4
    transfer: float = 0.8
    layer_s: float = 8e-6
    """Of each layer of each step: launches, norms, what is not a product."""
    step_s: float = 3e-3
    """Of each step: scheduling, sampling, messages."""
    link_latency_s: float = 8e-6
    """Of an all-reduce."""


class CostModel(Protocol):
    """All in seconds; `context_tokens` is the sum over rows."""

    @property
    def pads_contexts(self) -> bool:
        """Whether a decode step attends over as many keys for each row as the longest context has."""
        ...

    def prefill_s(self, num_tokens: int) -> float: ...

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float: ...

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        """A step that feeds drafts: `tokens_per_row` with the last token."""
        ...

    def train_s(self, num_tokens: int) -> float:
        """Forward and backward."""
        ...

    def optimizer_s(self) -> float: ...

    def publish_s(self) -> float:
        """Of a version's weights, from trainer to engines."""
        ...

    def load_s(self, num_bytes: float, tier: str) -> float:
        """From "host" or "disk" to the devices."""
        ...

    def offload_s(self, num_bytes: float, tier: str) -> float: ...

    def fetch_s(self, num_tokens: int) -> float:
        """Caches of so many tokens, from where another engine has left them."""
        ...

    def resume_s(self, num_tokens: int) -> float:
        """That the end of a chunk and the start of the one that goes on from its cache of so many tokens hold up all rows."""
        ...


class RooflineCosts:
    """A model over `num_devices`. `trained_share`: of the parameters that are trained, 1 in full, an adapter's share else."""

    def __init__(
        self,
        device: Accelerator,
        shape: ModelShape,
        num_devices: int = 1,
        trained_share: float = 1.0,
        efficiency: Efficiency = Efficiency(),
    ) -> None:
        self.device, self.shape, self.num_devices = device, shape, num_devices
        self.pads_contexts = False
        self.trained_share, self.efficiency = trained_share, efficiency
        self._bytes_per_s = device.memory_bytes_per_s * efficiency.memory * num_devices
        self._flops = device.flops * efficiency.arithmetic * num_devices
        self._known: dict[int, tuple[float, float, float]] = {}
        """What the weights, the layers and the reductions of a decode step take, by its rows."""

    # ---- rollout

    def prefill_s(self, num_tokens: int) -> float:
        """Attention over the prompt itself included, half of it masked."""
        if not num_tokens:
            return 0.0
        return self._step_s(num_tokens, num_tokens * num_tokens / 2, 0.0)

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        """As `verify_step_s` of one token a row. Asked twice for every change of a batch."""
        if not num_rows:
            return 0.0
        known = self._known.get(num_rows)
        if known is None:
            known = self._known[num_rows] = self._parts_s(num_rows)
        weights_s, layers_s, reduce_s = known
        cache_s = context_tokens * self.shape.kv_bytes_per_token / self._bytes_per_s
        return weights_s + max(self._attention_s(context_tokens), cache_s) + layers_s + reduce_s + self.efficiency.step_s

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        if not num_rows:
            return 0.0
        cache_bytes = context_tokens * self.shape.kv_bytes_per_token
        return self._step_s(num_rows * tokens_per_row, context_tokens * tokens_per_row, cache_bytes) + self.efficiency.step_s

    def _step_s(self, num_tokens: float, num_pairs: float, cache_bytes: float) -> float:
        """`num_pairs` of a query and a key that it attends to, in each layer."""
        weights_s, layers_s, reduce_s = self._parts_s(num_tokens)
        return weights_s + max(self._attention_s(num_pairs), cache_bytes / self._bytes_per_s) + layers_s + reduce_s

    def _parts_s(self, num_tokens: float) -> tuple[float, float, float]:
        """What does not depend on contexts: products with the weights, or reading those; what each layer takes; all-reduces."""
        shape = self.shape
        products = 2 * shape.active_parameters * num_tokens / self._flops
        weights = shape.touched_parameters(round(num_tokens)) * shape.bytes_per_parameter / self._bytes_per_s
        return max(products, weights), shape.num_layers * self.efficiency.layer_s, self._reduce_s(num_tokens)

    def _attention_s(self, num_pairs: float) -> float:
        return 4 * self.shape.query_width * self.shape.num_layers * num_pairs / self._flops

    def _reduce_s(self, num_tokens: float) -> float:
        """Two all-reduces a layer; each device sends and takes about twice the activations."""
        if self.num_devices == 1:
            return 0.0
        num_bytes = 2 * num_tokens * self.shape.hidden_size * self.shape.bytes_per_parameter
        once = num_bytes / (self.device.link_bytes_per_s * self.efficiency.transfer) + self.efficiency.link_latency_s
        return 2 * self.shape.num_layers * once

    # ---- training

    def train_s(self, num_tokens: int) -> float:
        """Two FLOPs a parameter forward, two for the activations' gradients, two for those of the trained parameters."""
        flops = (4 + 2 * self.trained_share) * self.shape.active_parameters * num_tokens
        return flops / (self.device.flops * self.efficiency.training * self.num_devices)

    def optimizer_s(self) -> float:
        """AdamW reads weight, gradient and two moments in float32, and writes three of them."""
        num_bytes = self.shape.num_parameters * self.trained_share * 4 * 7
        return num_bytes / self._bytes_per_s

    def publish_s(self) -> float:
        """Each device of the engine takes its share of the trained weights over its own network link."""
        num_bytes = self.shape.weight_bytes * self.trained_share
        return num_bytes / (self.device.network_bytes_per_s * self.efficiency.transfer * self.num_devices) + self.efficiency.step_s

    # ---- state

    def load_s(self, num_bytes: float, tier: str) -> float:
        return num_bytes / (self._tier_bytes_per_s(tier) * self.num_devices)

    def offload_s(self, num_bytes: float, tier: str) -> float:
        return self.load_s(num_bytes, tier)

    def fetch_s(self, num_tokens: int) -> float:
        """Each device takes its share of the heads over its own network link."""
        rate = self.device.network_bytes_per_s * self.efficiency.transfer * self.num_devices
        return num_tokens * self.shape.kv_bytes_per_token / rate

    def resume_s(self, num_tokens: int) -> float:
        """Caches in pages stay where they are."""
        return 0.0

    def _tier_bytes_per_s(self, tier: str) -> float:
        rate = {"host": self.device.host_bytes_per_s, "disk": self.device.disk_bytes_per_s}[tier]
        return rate * self.efficiency.transfer
