"""How long a generation will become, told from its siblings and from the same prompt in earlier steps. Pure.

The running maximum is that of Seer (arXiv 2511.14617, algorithm 2): the longest finished sibling, and before that the most allowed.
Ours weighs the prompt's history, worth `HISTORY_SAMPLES` samples, against the siblings.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

HistoryKey = tuple[str, str, int]
"""(tenant, task, digest of the prompt)."""

HISTORY_SAMPLES = 4.0
NEWEST_SHARE = 0.5
"""Weight of the newest step against all before it: policies change, and lengths with them."""


@dataclass(slots=True)
class Siblings:
    """Lengths, in tokens, of the finished samples of a group."""

    num: int = 0
    sum_tokens: int = 0
    max_tokens: int = 0

    def add(self, num_tokens: int) -> None:
        self.num += 1
        self.sum_tokens += num_tokens
        self.max_tokens = max(self.max_tokens, num_tokens)


@dataclass(slots=True)
class PromptLengths:
    """Of one prompt over earlier steps, in tokens, exponentially weighted."""

    mean_tokens: float
    max_tokens: float

    def add(self, siblings: Siblings) -> None:
        self.mean_tokens += NEWEST_SHARE * (siblings.sum_tokens / siblings.num - self.mean_tokens)
        self.max_tokens += NEWEST_SHARE * (siblings.max_tokens - self.max_tokens)


class LengthHistory:
    """Remembers the `max_prompts` prompts that were used last."""

    def __init__(self, max_prompts: int = 65536) -> None:
        self.max_prompts = max_prompts
        self.num_changes = 0
        """Since it was made: groups that it has learnt from."""
        self._prompts: OrderedDict[HistoryKey, PromptLengths] = OrderedDict()

    def __len__(self) -> int:
        return len(self._prompts)

    def items(self) -> Iterable[tuple[HistoryKey, PromptLengths]]:
        """The least recently used first."""
        return self._prompts.items()

    def get(self, key: HistoryKey) -> PromptLengths | None:
        return self._prompts.get(key)

    def add(self, key: HistoryKey, siblings: Siblings) -> None:
        """A group has ended; one without a finished sample says nothing."""
        if not siblings.num:
            return
        self.num_changes += 1
        lengths = self._prompts.get(key)
        if lengths is None:
            lengths = PromptLengths(siblings.sum_tokens / siblings.num, float(siblings.max_tokens))
        else:
            lengths.add(siblings)
        self.put(key, lengths)

    def put(self, key: HistoryKey, lengths: PromptLengths) -> None:
        """As what was used last."""
        self._prompts[key] = lengths
        self._prompts.move_to_end(key)
        if len(self._prompts) > self.max_prompts:
            self._prompts.popitem(last=False)


def running_maximum(siblings: Siblings, most_tokens: int) -> float:
    return float(siblings.max_tokens if siblings.num else most_tokens)


def estimated_tokens(siblings: Siblings, history: PromptLengths | None, longest_tokens: int, most_tokens: int) -> float:
    """Of a sample that is not finished. `longest_tokens` is the most that any has drawn so far, `most_tokens` the most allowed."""
    if history is None:
        tokens = running_maximum(siblings, most_tokens)
    else:
        tokens = (HISTORY_SAMPLES * history.mean_tokens + siblings.sum_tokens) / (HISTORY_SAMPLES + siblings.num)
    return min(float(most_tokens), max(tokens, longest_tokens))


@dataclass(slots=True)
class EstimateErrors:
    """Errors relative to the true length, of what was expected when a sample began."""

    num: int = 0
    sum_running_maximum: float = 0.0
    sum_estimate: float = 0.0

    def add(self, true_tokens: int, running_maximum: float, estimate: float) -> None:
        true_tokens = max(1, true_tokens)
        self.num += 1
        self.sum_running_maximum += abs(running_maximum - true_tokens) / true_tokens
        self.sum_estimate += abs(estimate - true_tokens) / true_tokens

    @property
    def mean_running_maximum(self) -> float:
        return self.sum_running_maximum / self.num if self.num else 0.0

    @property
    def mean_estimate(self) -> float:
        return self.sum_estimate / self.num if self.num else 0.0
