"""Which worker group has a deployment. Pure and without state of its own: clients name deployments and never see devices."""

from collections.abc import Mapping

import msgspec

from plait.types.errors import ConfigError


class Router(msgspec.Struct, frozen=True):
    """`routes`: group by deployment; `default` for those without a route, empty: none."""

    routes: Mapping[str, str] = {}
    default: str = ""

    def group_of(self, deployment: str) -> str:
        """Raises ConfigError for a deployment without a route."""
        group = self.routes.get(deployment, self.default)
        if not group:
            raise ConfigError(f"deployment {deployment!r} has no worker group.", f"Known are {sorted(self.routes)}.")
        return group

    def with_route(self, deployment: str, group: str) -> "Router":
        return Router({**self.routes, deployment: group}, self.default)
