"""What drafting takes and gives.

- A *group* is the set of generations of one prompt under one policy version; its name is unique in a deployment.
- A *request* is one generation; its name is unique in a deployment. Its tokens are those generated, not the prompt's.
- A draft is a guess only: verification draws every token again, so a wrong draft costs time and changes nothing.
"""

import msgspec


class DraftQuery(msgspec.Struct, frozen=True):
    """Asks for at most `max_tokens` tokens to follow `context_tail`.

    An empty `context_tail` means: after all tokens of `request` that were appended (the fast way, nothing is matched again).
    Otherwise it is the end of prompt and generated tokens together, the last token being the newest; 64 are enough.
    """

    group: str
    request: str
    context_tail: tuple[int, ...] = ()
    max_tokens: int = 8


class Draft(msgspec.Struct, frozen=True):
    """`probabilities[k]` is the share of the matched places that went on with `tokens[:k + 1]`; it never rises with k."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    match_tokens: int = 0
    """Length of the context's end that was found."""

    @property
    def score(self) -> float:
        """Expected number of accepted tokens, were the counts the truth."""
        return sum(self.probabilities)


class DraftIncrement(msgspec.Struct, frozen=True):
    """`tokens` are the tokens of `request` from position `start` on (0 is the first generated token)."""

    group: str
    request: str
    start: int
    tokens: tuple[int, ...]


NO_DRAFT = Draft()
