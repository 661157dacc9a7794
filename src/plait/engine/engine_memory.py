"""What an engine holds on the device besides the decoder's weights, and giving it up while the engine is idle.

- Slots are empty then, and are made anew.
- Stored blocks of key-value cache are handed over and given back, bit for bit. Whoever has them may lose them: then they are
  computed again.
- Adapters are read again from their files.
"""

from collections.abc import Mapping

from torch import Tensor

from plait.engine.engine import Engine

BLOCKS = "blocks"


class EngineMemory:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._indices: list[int] = []
        """Of the blocks that were handed over."""

    @property
    def num_bytes(self) -> int:
        engine = self._engine
        return engine.slots.num_bytes + engine.kv.storage.num_bytes + engine.adapters.num_bytes

    def give_up(self) -> dict[str, Tensor]:
        """Hand over what is stored (nothing, if nothing is), and free everything."""
        engine = self._engine
        assert not engine.rows, "rows are being computed"
        engine.slots.give_up()
        engine.adapters.drop_idle()
        engine.mixer.forget()
        engine.drawing.forget()
        self._indices = engine.pool.indices
        blocks = engine.kv.storage.give_up(self._indices)
        return {BLOCKS: blocks} if self._indices else {}

    def take_back(self, tensors: Mapping[str, Tensor]) -> None:
        """With what was handed over, or nothing if that is lost."""
        engine, blocks = self._engine, tensors.get(BLOCKS)
        device = engine.decoder.device
        engine.slots.take_back(device)
        engine.kv.storage.take_back(self._indices, blocks, device)
        if blocks is None:
            engine.pool.clear()
