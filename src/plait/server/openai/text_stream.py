"""Text of tokens as they come, such that what was given out never has to be taken back. Pure.

- No part of a character is given out, and no part of what may become a stop string.
- However the tokens are cut into pieces, the text is the same: that before the first stop string.
"""

import codecs
from collections.abc import Sequence


class TextStream:
    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.num_released = 0
        """Characters given out."""
        self.is_stopped = False
        """A stop string came; nothing more will be given out."""

    @property
    def num_chars(self) -> int:
        """Characters so far, those held back too."""
        return self.num_released + len(self._held)

    @property
    def holds_back(self) -> bool:
        """Some of the bytes so far have not been given out."""
        return bool(self._held or self._decoder.getstate()[0])

    def feed(self, new_bytes: bytes) -> str:
        """The text that is certain now."""
        return "" if self.is_stopped else self._advance(self._decoder.decode(new_bytes), is_last=False)

    def finish(self) -> str:
        """The rest: nothing more comes."""
        return "" if self.is_stopped else self._advance(self._decoder.decode(b"", final=True), is_last=True)

    def _advance(self, text: str, is_last: bool) -> str:
        self._held += text
        starts = [start for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if starts:
            self.is_stopped = True
            return self._release(min(starts), rest="")
        return self._release(len(self._held) - (0 if is_last else self._num_uncertain()))

    def _num_uncertain(self) -> int:
        """Characters at the end with which a stop string may begin."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0

    def _release(self, length: int, rest: str | None = None) -> str:
        text = self._held[:length]
        self._held = self._held[length:] if rest is None else rest
        self.num_released += length
        return text
