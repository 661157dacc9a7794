"""Client sessions: which are alive. Pure.

- A session lives while its heartbeats come, at most `heartbeat_timeout_s` apart. Without them it is lost, which is told once.
- A lost session lives again with its next heartbeat: its client was only cut off. A finished one never does: it is gone.
- Another tenant's session is unknown, like one that never was.
- What has been lost or finished is remembered for `REMEMBERED_S`.
"""

from collections import OrderedDict

from plait.types.errors import PlaitError

HEARTBEAT_TIMEOUT_S = 120.0
"""The SDK sends one every 10 s, and warns its user after two minutes without an answer."""
REMEMBERED_S = 86_400.0


class UnknownSession(PlaitError):
    """No session of this tenant has the id."""


class SessionGone(PlaitError):
    """The session has finished."""


class SessionTable:
    def __init__(self, heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S) -> None:
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self._tenants: dict[str, str] = {}
        self._live: OrderedDict[str, float] = OrderedDict()
        """session_id -> last heartbeat, the oldest first; the others likewise: since when."""
        self._lost: OrderedDict[str, float] = OrderedDict()
        self._finished: OrderedDict[str, float] = OrderedDict()

    @property
    def num_live(self) -> int:
        return len(self._live)

    def is_live(self, session_id: str) -> bool:
        return session_id in self._live

    def open(self, session_id: str, tenant_id: str, now: float) -> None:
        """A new session, or one that was alive before a restart."""
        if session_id in self._tenants:
            raise ValueError(f"session {session_id!r} is in the table already")
        self._tenants[session_id] = tenant_id
        self._live[session_id] = now

    def heartbeat(self, session_id: str, tenant_id: str, now: float) -> bool:
        """Its client is there. Whether it had been lost and lives again. UnknownSession, or SessionGone if it has finished."""
        self._check_owner(session_id, tenant_id)
        if session_id in self._finished:
            raise SessionGone(f"session {session_id!r} has finished.", "Open a new session.")
        was_lost = self._lost.pop(session_id, None) is not None
        self._live[session_id] = now
        self._live.move_to_end(session_id)
        return was_lost

    def finish(self, session_id: str, tenant_id: str, now: float) -> bool:
        """Its client is done. Whether it was alive, so that there is something to put away. UnknownSession if there is none."""
        self._check_owner(session_id, tenant_id)
        was_live = self._live.pop(session_id, None) is not None
        self._lost.pop(session_id, None)
        self._finished.setdefault(session_id, now)
        return was_live

    def expired(self, now: float) -> list[str]:
        """The sessions that are lost as of now, the longest silent first; each is told once for each time that it is lost."""
        lost = _pop_until(self._live, now - self.heartbeat_timeout_s)
        self._lost.update((session_id, now) for session_id in lost)
        for ended in (self._lost, self._finished):
            for session_id in _pop_until(ended, now - REMEMBERED_S):
                del self._tenants[session_id]
        return lost

    def _check_owner(self, session_id: str, tenant_id: str) -> None:
        if self._tenants.get(session_id) != tenant_id:
            raise UnknownSession(f"there is no session {session_id!r}.", "Open a new session.")


def _pop_until(times: OrderedDict[str, float], last_s: float) -> list[str]:
    """Take out all up to a time, that included."""
    taken: list[str] = []
    while times and next(iter(times.values())) <= last_s:
        taken.append(times.popitem(last=False)[0])
    return taken
