"""The worker groups that deployments share, by name, and the router between them. Torch-free."""

from collections.abc import Sequence

from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_group import WorkerGroup
from plait.scheduling.orders import ORDERS
from plait.types.errors import ConfigError


class WorkerGroups:
    """`order`: a name of `scheduling.orders.ORDERS`, with underscores. `router` may be replaced while deployments come."""

    def __init__(self, settings: Sequence[ConfigureGroup], router: Router, order: str = "hrrs", max_restarts: int = 3) -> None:
        self.router = router
        self._groups = {one.name: WorkerGroup(one, ORDERS[order.replace("_", "-")](), max_restarts) for one in settings}

    @property
    def groups(self) -> dict[str, WorkerGroup]:
        return dict(self._groups)

    def of(self, deployment: str) -> WorkerGroup:
        """Raises ConfigError if there is no such group."""
        name = self.router.group_of(deployment)
        if name not in self._groups:
            raise ConfigError(f"deployment {deployment!r} is routed to {name!r}.", f"There are groups {sorted(self._groups)}.")
        return self._groups[name]

    async def close(self) -> None:
        for group in self._groups.values():
            await group.close()
