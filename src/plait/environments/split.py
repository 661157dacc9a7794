"""Training and evaluation questions that never meet.

- Generated questions: a question belongs to evaluation iff the hash of its text says so, whatever the seed or index.
- Listed questions: the held-out ones come from a list of their own or are the last tenth; a training question with the
  text of a held-out one is left out.
- Texts are compared without regard to case and white space.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from plait.environments.protocol import Split
from plait.types.errors import ConfigError
from plait.types.seeds import derive_seed

HELD_OUT_PARTS = 4
"""One in so many different questions is held out: a space of a hundred questions still has about 25 to evaluate on."""
MAX_DRAWS = 2000
"""So many draws in a row without a new question mean that there are no more."""
LISTED_PARTS = 10
"""Without a list of its own, the last of so many parts of a list is held out."""

Entry = TypeVar("Entry")


def question_key(question: str) -> str:
    return " ".join(question.casefold().split())


def is_held_out(question: str) -> bool:
    digest = hashlib.blake2b(question_key(question).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % HELD_OUT_PARTS == 0


class GeneratedSplit(Generic[Entry]):
    """Questions drawn from a generator. `draw(index, split)` must be deterministic; `name` is for messages."""

    def __init__(self, draw: Callable[[int, Split], Entry], question: Callable[[Entry], str], name: str) -> None:
        self._draw = draw
        self._question = question
        self._name = name
        self._evaluation: list[Entry] = []
        self._seen: set[str] = set()
        self._num_draws = 0
        self._training = lru_cache(maxsize=256)(self._find_training)

    def entry(self, index: int, split: Split) -> Entry:
        if split == "train":
            return self._training(index)
        if self.count_evaluation(index + 1) <= index:
            raise IndexError(
                f"{self._name} has only {len(self._evaluation)} different held-out questions, so there is none at {index}: "
                f"set evaluation.questions to at most {len(self._evaluation)}, or choose options with more questions"
            )
        return self._evaluation[index]

    def count_evaluation(self, limit: int) -> int:
        while len(self._evaluation) < limit and self._find_evaluation():
            pass
        return min(limit, len(self._evaluation))

    def _find_training(self, index: int) -> Entry:
        for attempt in range(MAX_DRAWS):
            entry = self._draw(index if attempt == 0 else derive_seed("redraw", index, attempt) % 2**31, "train")
            if not is_held_out(self._question(entry)):
                return entry
        raise ConfigError(f"{self._name} has too few different questions to hold any out.", "Choose options with more questions.")

    def _find_evaluation(self) -> bool:
        for index in range(self._num_draws, self._num_draws + MAX_DRAWS):
            entry = self._draw(index, "evaluation")
            key = question_key(self._question(entry))
            if is_held_out(key) and key not in self._seen:
                self._num_draws = index + 1
                self._seen.add(key)
                self._evaluation.append(entry)
                return True
        return False


class ListedSplit(Generic[Entry]):
    """Questions from lists; training goes through its list again and again, each time in another order."""

    def __init__(
        self, train: Sequence[Entry], evaluation: Sequence[Entry] | None, question: Callable[[Entry], str], seed: int, name: str
    ) -> None:
        """Without `evaluation`, the last tenth of `train` is held out. Raises ConfigError if nothing is left to train on."""
        if evaluation is None:
            boundary = len(train) - len(train) // LISTED_PARTS
            train, evaluation = train[:boundary], train[boundary:]
        held_out = {question_key(question(entry)): entry for entry in evaluation}
        self._evaluation = list(held_out.values())
        self._train = [entry for entry in train if question_key(question(entry)) not in held_out]
        self._seed = seed
        self._name = name
        if not self._train:
            raise ConfigError(f"{name} has no training questions that are not also held out.", "Give it more questions.")

    def entry(self, index: int, split: Split) -> Entry:
        if split == "train":
            epoch, position = divmod(index, len(self._train))
            return self._train[self._order(epoch)[position]]
        if index >= len(self._evaluation):
            raise IndexError(
                f"{self._name} has only {len(self._evaluation)} held-out questions, so there is none at {index}: "
                f"set evaluation.questions to at most {len(self._evaluation)}, or give an evaluation_path with more"
            )
        return self._evaluation[index]

    def count_evaluation(self, limit: int) -> int:
        return min(limit, len(self._evaluation))

    @lru_cache(maxsize=2)  # noqa: B019 - an environment lives as long as its process
    def _order(self, epoch: int) -> list[int]:
        order = list(range(len(self._train)))
        random.Random(derive_seed(self._seed, "epoch", epoch)).shuffle(order)
        return order
