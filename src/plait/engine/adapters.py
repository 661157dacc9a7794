"""Which policy versions are in memory: adapters, and whole models of tasks that train all weights.

- A version is immutable; registered (somebody can read its file) and resident are different states, and what is resident never
  changes what a request gets.
- A miss loads it; nothing is ever "not found" because it was evicted.
- A version with references is never evicted; the last `window` adapters without any are kept.
- At most `max_models` models are held. A further one waits until one of them has no references (`has_place`), and takes its place.
- Where somebody else has a say in the room there is (`claim`), a model waits as long as others have references. Then, and an
  adapter at once, it is refused.
- Rows hold the loaded object itself, so no table of slots can point a row at somebody else's weights.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.types.errors import AdapterError, CapacityError
from plait.types.policy import AdapterRef, PolicyVersion

Weights = FusedAdapter | Decoder
"""An adapter on the shared base, or a model of its own."""
Loader = Callable[[AdapterRef], Weights]
Name = tuple[PolicyVersion, str]
"""Version and digest: the same version with other weights (a task deleted and made anew) is another adapter."""


@dataclass(slots=True)
class _Resident:
    weights: Weights
    references: int = 0

    @property
    def is_model(self) -> bool:
        return isinstance(self.weights, Decoder)


class AdapterStore:
    """`load` reads a version's file; it may raise PlaitError, OSError or ValueError. `is_model` tells what it will give."""

    def __init__(
        self, load: Loader, window: int, is_model: Callable[[AdapterRef], bool] = lambda ref: False, max_models: int = 1
    ) -> None:
        self._load, self.window, self._is_model, self.max_models = load, window, is_model, max_models
        self._resident: OrderedDict[Name, _Resident] = OrderedDict()
        self.claim: Callable[[AdapterRef], bool] = lambda ref: True
        """Whether there is room for a version that is about to be loaded."""
        self.num_loads = 0
        self.has_claim = False
        """Somebody besides the engine's rows waits for a model's place."""

    def is_model(self, ref: AdapterRef) -> bool:
        entry = self._resident.get((ref.policy, ref.digest))
        return self._is_model(ref) if entry is None else entry.is_model

    def is_resident(self, ref: AdapterRef) -> bool:
        return (ref.policy, ref.digest) in self._resident

    def has_place(self, ref: AdapterRef) -> bool:
        """Whether `acquire` may be called now: always, but for one more model than fits."""
        if self.is_resident(ref) or not self._is_model(ref):
            return True
        references = [self._resident[name].references for name in self._models()]
        if len(references) >= self.max_models and all(references):
            return False
        return self.claim(ref) or not any(references)

    def acquire(self, ref: AdapterRef) -> Weights:
        """The weights, loaded if need be, with one more reference. Raises PlaitError if their file does not serve, or there is no
        room."""
        name = (ref.policy, ref.digest)
        entry = self._resident.get(name)
        if entry is None:
            if self._is_model(ref):
                self._make_place()
            entry = _Resident(self._read(ref))
            self._resident[name] = entry
        entry.references += 1
        self._resident.move_to_end(name)
        return entry.weights

    def _make_place(self) -> None:
        models = self._models()
        idle = [name for name in models if not self._resident[name].references]
        for name in idle[: max(0, len(models) + 1 - self.max_models)]:
            del self._resident[name]

    def _models(self) -> list[Name]:
        """The least recently used first."""
        return [name for name, entry in self._resident.items() if entry.is_model]

    def _read(self, ref: AdapterRef) -> Weights:
        if not self.claim(ref):
            raise CapacityError(
                f"version {ref.policy} finds no room on the device beside what is in use there.",
                "Raise workers.device_bytes, or lower engine.slot_tokens or engine.pool_tokens.",
            )
        self.num_loads += 1
        try:
            return self._load(ref)
        except (OSError, ValueError) as error:
            raise AdapterError(f"adapter {ref.policy} at {ref.path!r} cannot be read: {error}.", "Publish it again.") from error

    def release(self, ref: AdapterRef) -> None:
        self._resident[ref.policy, ref.digest].references -= 1
        self._evict()

    def _evict(self) -> None:
        idle = [name for name, entry in self._resident.items() if not entry.references and not entry.is_model]
        for name in idle[: max(0, len(idle) - self.window)]:
            del self._resident[name]

    def drop_idle(self) -> None:
        """Give up all that nobody uses."""
        self._resident = OrderedDict((name, entry) for name, entry in self._resident.items() if entry.references)

    @property
    def num_bytes(self) -> int:
        return sum(entry.weights.num_bytes for entry in self._resident.values())

    @property
    def num_references(self) -> int:
        return sum(entry.references for entry in self._resident.values())

    @property
    def resident(self) -> tuple[PolicyVersion, ...]:
        return tuple(policy for policy, _ in self._resident)


class StartTurn:
    """One turn of starting chunks, in the order of their arrival: which of their policies may start now.

    Once a chunk waits for a model's place, later chunks of models do not start either, so that a place comes free. All chunks of a
    model that is loaded in this turn start with it: models that are more than fit take turns with as many rows as they have.
    """

    def __init__(self, store: AdapterStore) -> None:
        self._store, self._is_held = store, store.has_claim
        self._loaded: set[Name] = set()

    def may_start(self, ref: AdapterRef | None) -> bool:
        if ref is None or not self._store.is_model(ref):
            return True
        if (ref.policy, ref.digest) in self._loaded:
            return True
        if self._is_held or not self._store.has_place(ref):
            self._is_held = True
            return False
        if not self._store.is_resident(ref):
            self._loaded.add((ref.policy, ref.digest))
        return True


def split(weights: Weights | None, base: Decoder) -> tuple[Decoder, FusedAdapter | None]:
    """The decoder that computes a policy, and the adapter on it."""
    return (weights, None) if isinstance(weights, Decoder) else (base, weights)
