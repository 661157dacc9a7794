"""Whose state is on a group's devices, by the state manager's own ledger; moves take what a cost model says.

What comes before its turn, comes beside the calls that run: only what is left of it by then is setup.
"""

from collections.abc import Collection, Iterable

from plait.residency.eviction import least_soon
from plait.residency.holdings import Contents
from plait.residency.ledger import ResidencyLedger
from plait.residency.rates import Route, TransferRates
from plait.residency.setup import estimate_setup_s
from plait.residency.tier import TIERS, Tier
from plait.simulation.costs import CostModel

DEVICE, HOST, DISK = TIERS
"""Members of an enumeration are looked up slowly, and these with every switch."""


class CostRates(TransferRates):
    """Rates that are known. `switch_s`: of each load besides its bytes."""

    def __init__(self, costs: CostModel, switch_s: float) -> None:
        super().__init__()
        self._costs, self._switch_s = costs, switch_s

    def estimate_s(self, route: Route, num_bytes: int) -> float:
        if not num_bytes:
            return 0.0
        if route[1] is DEVICE:
            return self._switch_s + self._costs.load_s(num_bytes, route[0].value)
        return self._costs.offload_s(num_bytes, route[1].value)


class GroupResidency:
    """The `SetupEstimates` of a group. `budget_bytes`: for state, of all its devices; a deployment that needs more gets it."""

    def __init__(self, budget_bytes: int, rates: TransferRates) -> None:
        self.ledger = ResidencyLedger({DEVICE: budget_bytes, HOST: None, DISK: None})
        self._budget_bytes = budget_bytes
        self._rates = rates
        self._num_bytes: dict[str, int] = {}
        self.may_stage = False
        """Some deployment is elsewhere, and some two fit together."""
        self._do_two_fit = False
        self._known_s: dict[str, float] = {}
        """Setups since anything last moved."""
        self._num_uses = 0
        self._latest = ""
        """Whose state came last, or was there; nothing has moved since."""
        self._arriving_s: dict[str, float] = {}
        """Of those that come before their turn: how long it takes, and once it has begun when it ends."""
        self._unsaved: set[str] = set()
        """Deployments that have no copy below the device."""

    def join(self, deployment: str, num_bytes: int, tier: Tier) -> None:
        """Its state lies in `tier`, below the device."""
        self.ledger.put(deployment, {deployment: num_bytes})
        self.ledger.adopt(tier, {deployment: num_bytes})
        self._num_bytes[deployment] = num_bytes
        self._fit_budget()

    def leave(self, deployment: str) -> None:
        for tier, key in self.ledger.remove(deployment):
            self.ledger.discard(tier, key)
        del self._num_bytes[deployment]
        self._unsaved.discard(deployment)
        self._arriving_s.pop(deployment, None)
        self._latest = ""
        self._fit_budget()

    def setup_s(self, deployment: str) -> float:
        found = self._known_s.get(deployment)
        if found is None:
            found = self._known_s[deployment] = self._estimate_s(deployment)
        return found

    def _estimate_s(self, deployment: str) -> float:
        if self.ledger.is_resident(deployment, DEVICE) and not self.ledger.shortfall(DEVICE, 0):
            return 0.0
        return estimate_setup_s(self.ledger, self._rates, least_soon, (deployment,), 0.0)

    def enter(self, deployment: str, now_s: float) -> float:
        """Seconds until it is on the devices; from now on it is."""
        if deployment == self._latest:
            return 0.0  # And used last: nobody was touched since.
        self._touch(deployment)
        self._latest = deployment
        missing = self.ledger.missing(deployment, DEVICE)
        if not missing:
            return max(0.0, self._arriving_s.pop(deployment, now_s) - now_s)
        setup_s = self.setup_s(deployment)
        self._bring(deployment, missing, self._leaving(missing, now_s, (deployment,)) or ())
        return setup_s

    def _leaving(self, missing: Contents, now_s: float, spared: Collection[str]) -> tuple[str, ...] | None:
        shortfall = self.ledger.shortfall(DEVICE, sum(missing.values()))
        return self.ledger.victims(DEVICE, shortfall, least_soon, now_s, spared)

    def _bring(self, deployment: str, missing: Contents, leaving: Iterable[str]) -> None:
        for name in leaving:
            self._offload(name)
        reservation = self.ledger.reserve(DEVICE, missing)
        assert reservation is not None, "victims made room"
        self.ledger.commit(reservation)
        self.ledger.adopt(HOST, missing)  # What comes from disk comes through host memory.
        self._unsaved.discard(deployment)
        self._moved()

    # ---- before its turn, as `cluster.groups.lookahead` has it

    @property
    def resident(self) -> tuple[str, ...]:
        return tuple(name for name in self._num_bytes if self.ledger.is_resident(name, DEVICE))

    def stage(self, deployment: str, kept: Collection[str]) -> tuple[str, ...] | None:
        """It is as good as there; None: there is no room beside those that are kept. `begin` follows."""
        missing = self.ledger.missing(deployment, DEVICE)
        leaving = self._leaving(missing, 0.0, {deployment, *kept})
        if leaving is None:
            return None
        offload_s = self._rates.estimate_s((DEVICE, HOST), sum(self._num_bytes[name] for name in leaving if self._is_last(name)))
        for name in leaving:
            self._offload(name)
        self._arriving_s[deployment] = offload_s + self.setup_s(deployment)
        self._bring(deployment, missing, ())
        self._latest = ""
        return leaving

    def begin(self, deployment: str, now_s: float) -> None:
        """What was staged comes from now on."""
        self._touch(deployment)
        self._arriving_s[deployment] += now_s

    def changed(self, deployment: str) -> None:
        """A call has changed its state: copies below the device are stale, and when it leaves it has to be written."""
        if deployment in self._unsaved:
            return
        self._unsaved.add(deployment)
        for tier in (HOST, DISK):
            if self.ledger.has(tier, deployment):
                self.ledger.discard(tier, deployment)
                self._known_s.clear()

    def _offload(self, name: str) -> None:
        ledger = self.ledger
        self._arriving_s.pop(name, None)
        if self._is_last(name):
            ledger.adopt(HOST, ledger.contents(name))
            self._unsaved.discard(name)
        ledger.discard(DEVICE, name)
        self._moved()

    def _touch(self, deployment: str) -> None:
        """What came last counts as used last, also at one time."""
        self._num_uses += 1
        self.ledger.touch(deployment, self._num_uses)

    def _is_last(self, name: str) -> bool:
        return self.ledger.is_last(DEVICE, name)

    def _fit_budget(self) -> None:
        sizes = sorted(self._num_bytes.values())
        budget = self.ledger.budgets[DEVICE] = max(self._budget_bytes, *sizes, 0)
        self._do_two_fit = len(sizes) > 1 and sum(sizes[:2]) <= budget
        self._moved()

    def _moved(self) -> None:
        """Or joined, or left."""
        self._known_s.clear()
        self.may_stage = self._do_two_fit and len(self.resident) < len(self._num_bytes)
