"""How the adapters of a batch are laid out; every form gives a row the same bits."""

from collections.abc import Sequence

import torch

from plait.lora.mix import FusedAdapter, SegmentLora, SingleLora, mix_adapters
from plait.lora.stack import StackedAdapters
from plait.models.decoder import LoraDelta

Owners = Sequence[FusedAdapter | None]
"""The adapter of each row; None is the base alone."""


class AdapterMixer:
    """Keeps the stacked weights of the adapters being decoded, and stacks anew only when one is missing or most are stale."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stacked = StackedAdapters(())

    def for_decode(self, owners: Owners) -> LoraDelta | None:
        """A few rows each of several adapters."""
        adapters = _distinct(owners)
        if len(adapters) <= 1:
            return self.for_prefill(owners)
        kept = self._stacked.adapters
        if len(kept) > 2 * len(adapters) or any(adapter not in kept for adapter in adapters):
            self._stacked = StackedAdapters(adapters)
        return mix_adapters(self._stacked, self._places(self._stacked.adapters, owners))

    def for_prefill(self, owners: Owners) -> LoraDelta | None:
        """Many rows of each adapter."""
        adapters = _distinct(owners)
        if len(adapters) == 1 and None not in owners:
            return SingleLora(adapters[0])
        return SegmentLora(adapters, self._places(adapters, owners)) if adapters else None

    def _places(self, adapters: Sequence[FusedAdapter], owners: Owners) -> torch.Tensor:
        """Each row's index among `adapters`, -1 for the base."""
        places = {None: -1} | {adapter: place for place, adapter in enumerate(adapters)}
        return torch.tensor([places[owner] for owner in owners], device=self.device)


def _distinct(owners: Owners) -> list[FusedAdapter]:
    return [adapter for adapter in dict.fromkeys(owners) if adapter is not None]
