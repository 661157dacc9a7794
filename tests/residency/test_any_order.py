"""Whatever is done in whatever order, whichever step fails: groups hold what they should, and every byte is counted."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from plait.residency import canonical
from plait.residency.manager import StateManager
from plait.residency.tier import TIERS, Tier
from plait.types.errors import PlaitError
from tests.residency.audit import LARGE_BYTES, audit, opened, same, tensors
from tests.residency.conftest import MEMORY
from tests.residency.faults import Turn, fail, injected

NAMES = ["a", "b", "c"]
names, seeds, failing = st.sampled_from(NAMES), st.integers(0, 3), st.integers(1, 40)
"""`failing`: the call to the system that fails, if it comes to so many."""
LARGE_CONTENTS = canonical.OWN_CONTENT_BYTES


class ManagerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        canonical.OWN_CONTENT_BYTES = LARGE_BYTES
        self.folder = Path(tempfile.mkdtemp(prefix="plait-test-", dir=MEMORY if MEMORY.is_dir() else None))
        self.manager = self._open()
        self.expected: dict[str, dict[str, Tensor]] = {}
        self.held: dict[str, list[dict[str, Tensor]]] = {}
        self.saved: dict[str, dict[str, Tensor]] = {}

    def _open(self) -> StateManager:
        budgets = {Tier.DEVICE: 5 * LARGE_BYTES, Tier.HOST: 3 * LARGE_BYTES, Tier.DISK: 12 * LARGE_BYTES}
        return opened(self.folder, budgets)

    def teardown(self) -> None:
        canonical.OWN_CONTENT_BYTES = LARGE_CONTENTS
        self.manager.close()
        shutil.rmtree(self.folder)

    @rule(name=names, seed=seeds, turn=failing)
    def register(self, name: str, seed: int, turn: int) -> None:
        with injected(Turn(turn, fail)):
            try:
                self.manager.register(name, tensors(seed))
            except PlaitError:
                return
        assert name not in self.expected
        self.expected[name] = tensors(seed)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), is_writable=st.booleans(), turn=failing)
    def acquire(self, data: st.DataObject, is_writable: bool, turn: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        with injected(Turn(turn, fail)):
            try:
                found = self.manager.acquire(name, is_writable)
            except PlaitError:
                return
        assert same(found, self.expected[name])
        self.held.setdefault(name, []).append(found)
        if is_writable:
            for tensor in found.values():
                tensor.add_(1)
            self.expected[name] = {key: tensor.clone() for key, tensor in found.items()}

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        self.manager.release(name)
        self.held[name].pop()
        if not self.held[name]:
            del self.held[name]

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), seed=seeds, turn=failing)
    def update(self, data: st.DataObject, seed: int, turn: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        chosen = data.draw(st.sets(st.sampled_from(sorted(tensors(0))), min_size=1))
        changed = {key: tensor for key, tensor in tensors(seed).items() if key in chosen}
        with injected(Turn(turn, fail)):
            try:
                self.manager.update(name, changed)
            except PlaitError:
                return
        self.expected[name] = self.expected[name] | changed

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), tier=st.sampled_from(TIERS[1:]), turn=failing)
    def leave(self, data: st.DataObject, tier: Tier, turn: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        with injected(Turn(turn, fail)):
            self.manager.offload(name, tier)
            self.manager.flush()

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), hinted=st.lists(names), turn=failing)
    def prefetch(self, data: st.DataObject, hinted: list[str], turn: int) -> None:
        self.manager.hint(hinted)
        with injected(Turn(turn, fail)):
            self.manager.prefetch(data.draw(st.sampled_from(sorted(self.expected))))
            self.manager.flush()

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), turn=failing)
    def drop(self, data: st.DataObject, turn: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        with injected(Turn(turn, fail)):
            try:
                self.manager.drop(name)
            except PlaitError:
                return
        assert name not in self.held
        del self.expected[name]

    @precondition(lambda self: self.expected)
    @rule()
    def reopen(self) -> None:
        """What was written to disk since it changed last is there; what is there otherwise is as it was some time before."""
        is_current = {n: self.manager._ledger.saved(n) == self.manager.group(n).contents.keys() for n in self.expected}
        self.manager.close()
        self.manager = self._open()
        self.held = {}
        assert {name for name, current in is_current.items() if current} <= set(self.manager.names()) <= set(self.expected)
        for name in list(self.expected):
            if name not in self.manager:
                del self.expected[name]
            elif not is_current[name]:
                self.expected[name] = {key: tensor.clone() for key, tensor in self.manager.acquire(name).items()}
                self.manager.release(name)

    @invariant()
    def every_byte_is_counted(self) -> None:
        audit(self.manager, self.folder, self.held)
        assert self.manager.names() == sorted(self.expected)
        for name in self.expected:
            assert self.manager.tier(name) is Tier.DEVICE or name not in self.held


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
