"""Who asks: the tenant behind a key. Keys are looked up once and remembered until they are revoked."""

import time
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy.orm import Session

from plait.server.database import tenants
from plait.server.database.database import Database
from plait.server.database.tables import ApiKey
from plait.server.errors import Forbidden, Unauthorized
from plait.server.keys import digest, key_id_of, matches

MAX_REMEMBERED = 10_000
REMEMBERED_S = 30.0
"""A key that another process (`plait keys revoke`) revoked is refused after so long at the latest."""


@dataclass(frozen=True, slots=True)
class Principal:
    tenant_id: str
    key_id: str
    is_admin: bool
    is_strict: bool = False

    def require_admin(self) -> None:
        if not self.is_admin:
            raise Forbidden(f"key {self.key_id} has the role 'member'.", "This needs a key with the role 'admin'.")


class Authenticator:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()
        """By digest of the key: the principal, and until when it is trusted."""

    async def principal(self, key: str | None) -> Principal:
        if not key:
            raise Unauthorized("the request has no key.", "Send it as the header X-API-Key, or as a Bearer token.")
        secret_digest = digest(key)
        known = self._known.get(secret_digest)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        principal = await self._look_up(key)
        self._known[secret_digest] = principal, time.monotonic() + REMEMBERED_S
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def _look_up(self, key: str) -> Principal:
        key_id = key_id_of(key)
        row = await self._database.run(lambda session: _get(session, key_id)) if key_id else None
        if row is None or row.revoked_s is not None or not matches(key, row.secret_digest):
            raise Unauthorized("the key is unknown or revoked.", "`plait keys create` makes one.")
        return Principal(row.tenant_id, row.key_id, row.role == "admin", row.strict)

    def forget(self, key_id: str) -> None:
        """A key was revoked: it opens nothing from now on."""
        self._known = OrderedDict(item for item in self._known.items() if item[1][0].key_id != key_id)


def _get(session: Session, key_id: str) -> ApiKey | None:
    return tenants.get_key(session, key_id)
