"""Which training call runs its next slice, where tenants share the trainer by weight. Pure.

- Between tenants: start-time fair queueing (Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996), each slice counted alike.
  A tenant that comes with a call waits for at most one slice of each other that waits too, whatever their weights are. While it
  waits for its next slice, another of w times its weight gets at most w + 1. An idle tenant saves up nothing.
- Within a tenant everything is as in `SliceQueue`; with one tenant there is no difference at all.
"""

import math
from dataclasses import dataclass, field

from plait.training.slices import SliceQueue


@dataclass(slots=True)
class _Tenant:
    calls: SliceQueue = field(default_factory=SliceQueue)
    weight: float = 1.0
    start: float = 0.0
    """Virtual time at which its next slice begins."""
    finish: float = 0.0
    """Virtual time up to which it has been served."""
    number: int = 0
    """Of equal starts the one that lined up first goes first."""
    num_waited: int = 0
    """Slices of other tenants since it lined up."""


class TenantSlices:
    """Decides by name; the calls themselves are the caller's."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._tenant_of: dict[str, str] = {}
        """Of each call."""
        self._virtual_time = 0.0
        """The start of the latest slice."""
        self._num_lined_up = 0

    def set_weight(self, tenant: str, weight: float) -> None:
        """Of slices from now on; 1 for a tenant that none was set for. ValueError unless finite and above 0."""
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"weight of tenant {tenant!r} is {weight}: it must be finite and above 0")
        self._tenants.setdefault(tenant, _Tenant()).weight = weight

    def add(self, name: str, num_slices: int, tenant: str) -> None:
        """ValueError if a call of that name is here already."""
        if name in self._tenant_of:
            raise ValueError(f"a call of {name!r} is in the queue already")
        found = self._tenants.setdefault(tenant, _Tenant())
        if not len(found.calls):
            self._line_up(found)
        found.calls.add(name, num_slices)
        self._tenant_of[name] = tenant

    def remove(self, name: str) -> None:
        """Take a call out, complete or not; an unknown name is fine."""
        tenant = self._tenant_of.pop(name, None)
        if tenant is not None:
            self._tenants[tenant].calls.remove(name)

    def __len__(self) -> int:
        return len(self._tenant_of)

    def next(self) -> str:
        """The call whose slice runs now. Raise LookupError if there is none."""
        if not self._tenant_of:
            raise LookupError("no training call waits")
        return min(self._waiting(), key=lambda tenant: (tenant.start, tenant.number)).calls.next()

    def num_waited(self, name: str) -> int:
        """How many slices of other tenants have run since the call's tenant began to wait for its next one."""
        return self._tenants[self._tenant_of[name]].num_waited

    def ran(self, name: str) -> None:
        """One slice of the call is done."""
        served = self._tenants[self._tenant_of[name]]
        served.calls.ran(name)
        for tenant in self._waiting():
            tenant.num_waited += 1
        self._virtual_time = served.start
        served.finish = served.start + 1 / served.weight
        self._line_up(served)

    def _waiting(self) -> list[_Tenant]:
        return [tenant for tenant in self._tenants.values() if len(tenant.calls)]

    def _line_up(self, tenant: _Tenant) -> None:
        tenant.start = max(self._virtual_time, tenant.finish)
        tenant.num_waited = 0
        tenant.number = self._num_lined_up
        self._num_lined_up += 1
