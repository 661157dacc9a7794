"""Whose state is on a group's devices, by the state manager's own ledger; moves take what a cost model says."""

from plait.residency.eviction import least_soon
from plait.residency.ledger import ResidencyLedger
from plait.residency.rates import Route, TransferRates
from plait.residency.setup import estimate_setup_s
from plait.residency.tier import Tier
from plait.simulation.costs import CostModel


class CostRates(TransferRates):
    """Rates that are known. `switch_s`: of each load besides its bytes."""

    def __init__(self, costs: CostModel, switch_s: float) -> None:
        super().__init__()
        self._costs, self._switch_s = costs, switch_s

    def estimate_s(self, route: Route, num_bytes: int) -> float:
        if not num_bytes:
            return 0.0
        if route[1] is Tier.DEVICE:
            return self._switch_s + self._costs.load_s(num_bytes, route[0].value)
        return self._costs.offload_s(num_bytes, route[1].value)


class GroupResidency:
    """The `SetupEstimates` of a group. `budget_bytes`: for state, of all its devices; a deployment that needs more gets it."""

    def __init__(self, budget_bytes: int, rates: TransferRates) -> None:
        self.ledger = ResidencyLedger({Tier.DEVICE: budget_bytes, Tier.HOST: None, Tier.DISK: None})
        self._budget_bytes = budget_bytes
        self._rates = rates
        self._num_bytes: dict[str, int] = {}
        self._known_s: dict[str, float] = {}
        """Setups since anything last moved."""
        self._latest = ""
        """Whose state came last, or was there; nothing has moved since."""
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
        self._latest = ""
        self._fit_budget()

    def setup_s(self, deployment: str) -> float:
        found = self._known_s.get(deployment)
        if found is None:
            found = estimate_setup_s(self.ledger, self._rates, least_soon, (deployment,), 0.0)
            self._known_s[deployment] = found
        return found

    def enter(self, deployment: str, now_s: float) -> float:
        """Seconds until it is on the devices; from now on it is."""
        ledger = self.ledger
        ledger.touch(deployment, now_s)
        if deployment == self._latest:
            return 0.0
        self._latest = deployment
        missing = ledger.missing(deployment, Tier.DEVICE)
        if not missing:
            return 0.0
        setup_s = self.setup_s(deployment)
        shortfall = ledger.shortfall(Tier.DEVICE, sum(missing.values()))
        for name in ledger.victims(Tier.DEVICE, shortfall, least_soon, now_s, (deployment,)) or ():
            self._offload(name)
        reservation = ledger.reserve(Tier.DEVICE, missing)
        assert reservation is not None, "victims made room"
        ledger.commit(reservation)
        ledger.adopt(Tier.HOST, missing)  # What comes from disk comes through host memory.
        self._unsaved.discard(deployment)
        self._known_s.clear()
        return setup_s

    def changed(self, deployment: str) -> None:
        """A call has changed its state: copies below the device are stale, and when it leaves it has to be written."""
        if deployment in self._unsaved:
            return
        self._unsaved.add(deployment)
        for tier in (Tier.HOST, Tier.DISK):
            if self.ledger.has(tier, deployment):
                self.ledger.discard(tier, deployment)
                self._known_s.clear()

    def _offload(self, name: str) -> None:
        ledger = self.ledger
        if ledger.is_last(Tier.DEVICE, name):
            ledger.adopt(Tier.HOST, ledger.contents(name))
            self._unsaved.discard(name)
        ledger.discard(Tier.DEVICE, name)

    def _fit_budget(self) -> None:
        self.ledger.budgets[Tier.DEVICE] = max(self._budget_bytes, *self._num_bytes.values(), 0)
        self._known_s.clear()
