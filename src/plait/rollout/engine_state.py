"""What a scheduler knows of one engine when it decides. All sizes in tokens of cache."""

import msgspec


class EngineState(msgspec.Struct, frozen=True):
    """`reserved_tokens` is the sum of the footprints of the `num_rows` chunks that run.

    An engine that is being replaced is passed as full (`num_rows` = `max_rows`): then no request that will fit there is told
    that it fits nowhere.
    """

    name: str
    cache_tokens: int
    """Capacity."""
    reserved_tokens: int
    max_rows: int
    num_rows: int

    @property
    def free_tokens(self) -> int:
        return self.cache_tokens - self.reserved_tokens

    def has_room(self, footprint_tokens: int) -> bool:
        """Whether a chunk of that footprint may run now."""
        return self.num_rows < self.max_rows and footprint_tokens <= self.free_tokens
