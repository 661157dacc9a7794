"""The suffix tree's slow oracle: it scans all sequences for every question."""

from dataclasses import dataclass, field

from plait.drafting.draft import Draft
from plait.drafting.suffix_tree import MAX_MATCHES


@dataclass
class SlowTree:
    depth: int
    sequences: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def append(self, name: str, tokens: tuple[int, ...]) -> None:
        self.sequences[name] = self.sequences.get(name, ()) + tokens

    def count(self, text: tuple[int, ...]) -> int:
        """Number of places where `text` occurs."""
        num = len(text)
        return sum(held[end - num : end] == text for held in self.sequences.values() for end in range(num, len(held) + 1))

    def favourite(self, text: tuple[int, ...]) -> tuple[int, int]:
        """The count of the most frequent token after `text`, and the token."""
        after = {token for held in self.sequences.values() for token in held}
        num, negative = max(((self.count((*text, token)), -token) for token in after), default=(0, 0))
        return num, -negative

    def follow(self, text: tuple[int, ...], max_tokens: int, min_probability: float) -> Draft:
        path: tuple[int, ...] = ()
        probabilities: tuple[float, ...] = ()
        while len(path) < max_tokens:
            num, token = self.favourite(text + path)
            if not num or num / self.count(text) < min_probability:
                break
            path, probabilities = (*path, token), (*probabilities, num / self.count(text))
        return Draft(path, probabilities, len(text))

    def matches(self, context: tuple[int, ...], max_tokens: int) -> list[tuple[int, ...]]:
        """The ends of the context to try: of those that occur equally often the longest."""
        found: list[tuple[int, ...]] = []
        for num in range(min(len(context), max(self.depth - max_tokens, 1)), 0, -1):
            text = context[-num:]
            if self.count(text) > (self.count(found[-1]) if found else 0):
                found.append(text)
        return found[:MAX_MATCHES]

    def speculate(self, context: tuple[int, ...], max_tokens: int, min_probability: float) -> Draft:
        drafts = [self.follow(text, max_tokens, min_probability) for text in self.matches(context, max_tokens)]
        return max(
            (draft for draft in drafts if draft.tokens), key=lambda draft: (draft.score, draft.match_tokens), default=Draft()
        )
