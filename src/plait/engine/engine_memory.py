"""What an engine holds on the device besides the decoder's weights, and giving it up while the engine is idle.

- Slots are empty then, and are made anew.
- Stored blocks of key-value cache are handed over and given back, bit for bit. Whoever has them may lose them: then they are
  computed again.
- Adapters are read again from their files.
"""

from collections.abc import Iterable

from torch import Tensor

from plait.engine.engine import Engine


class EngineMemory:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._indices: list[int] = []
        """Of the blocks that were handed over."""

    @property
    def num_bytes(self) -> int:
        engine = self._engine
        return engine.slots.num_bytes + engine.kv.storage.num_bytes + engine.adapters.num_bytes

    def give_up(self) -> Tensor | None:
        """Hand over what is stored, [blocks, ...]; None, if nothing is. Frees everything."""
        engine = self._engine
        assert not engine.rows, "rows are being computed"
        engine.slots.give_up()
        engine.adapters.drop_idle()
        engine.mixer.forget()
        engine.drawing.forget()
        self._indices = engine.pool.indices
        blocks = engine.kv.storage.give_up(self._indices)
        return blocks if self._indices else None

    def take_back(self, pieces: Iterable[Tensor]) -> None:
        """With what was handed over, in its order, in pieces of any size. If some of it is missing, all is lost."""
        engine, device = self._engine, self._engine.decoder.device
        engine.slots.take_back(device)
        engine.kv.storage.take_back(device)
        num_filled = 0
        for piece in pieces:
            engine.kv.storage.fill(self._indices[num_filled : num_filled + len(piece)], piece)
            num_filled += len(piece)
        if num_filled < len(self._indices):
            engine.pool.clear()
