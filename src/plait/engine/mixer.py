"""How the adapters of a batch are laid out; every form gives a row the same bits."""

from collections.abc import Sequence

import torch

from plait.lora.mix import FusedAdapter, SegmentLora, SingleLora, mix_adapters
from plait.lora.stack import StackedAdapters
from plait.models.decoder import LoraDelta

Owners = Sequence[FusedAdapter | None]
"""The adapter of each row; None is the base alone."""


MIN_TOGETHER_TOKENS = 128
"""Prompts of fewer are taken adapter by adapter: products of several have many more shapes, and oneDNN makes kernels for each."""


class AdapterMixer:
    """Keeps the stacked weights of the adapters that run, and stacks anew only when one is missing or most are stale."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stacked = StackedAdapters(())

    def forget(self) -> None:
        """Free what is stacked."""
        self._stacked = StackedAdapters(())

    def for_decode(self, owners: Owners, running: Owners) -> LoraDelta | None:
        """For a row of each. `running` has the adapters of all rows, decoded now or not, so that they are stacked once."""
        adapters = _distinct(owners)
        return self._together(owners, running) if len(adapters) > 1 else self._apart(adapters, owners)

    def for_prefill(self, owners: Owners, running: Owners) -> LoraDelta | None:
        """For the tokens of prompts."""
        adapters = _distinct(owners)
        is_worth_it = len(adapters) > 1 and len(owners) >= MIN_TOGETHER_TOKENS
        return self._together(owners, running) if is_worth_it else self._apart(adapters, owners)

    def _together(self, owners: Owners, running: Owners) -> LoraDelta | None:
        self._stack(_distinct(running))
        return mix_adapters(self._stacked, self._places(self._stacked.adapters, owners))

    def _apart(self, adapters: Sequence[FusedAdapter], owners: Owners) -> LoraDelta | None:
        if len(adapters) == 1 and None not in owners:
            return SingleLora(adapters[0])
        return SegmentLora(adapters, self._places(adapters, owners)) if adapters else None

    def _stack(self, adapters: Sequence[FusedAdapter]) -> None:
        kept = self._stacked.adapters
        if len(kept) > 2 * len(adapters) or any(adapter not in kept for adapter in adapters):
            self._stacked = StackedAdapters(adapters)

    def _places(self, adapters: Sequence[FusedAdapter], owners: Owners) -> torch.Tensor:
        """Each row's index among `adapters`, -1 for the base."""
        places = {None: -1} | {adapter: place for place, adapter in enumerate(adapters)}
        return torch.tensor([places[owner] for owner in owners], device=self.device)


def _distinct(owners: Owners) -> list[FusedAdapter]:
    return [adapter for adapter in dict.fromkeys(owners) if adapter is not None]
