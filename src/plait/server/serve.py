"""`plait serve`: open the database, start the service, listen, and stop in good order."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
import uvloop

from plait.cluster.messages import Ready
from plait.config.load_server import conflicts, effective_server_toml
from plait.config.server import ServerSettings
from plait.server.administration import FROM_COMMAND_LINE, new_key
from plait.server.app import make_app
from plait.server.database import effective, tenants
from plait.server.database.database import Database
from plait.server.principal import Principal
from plait.server.server_lock import DatabaseLock, server_lock
from plait.server.service import Service
from plait.server.wire.models.administration import CreateKeyRequest
from plait.types.errors import ConfigError, StateError
from plait.types.policy import LOCAL_TENANT

STOP_S = 5.0
"""How long requests that are being answered may take at the end, after `stop_timeout_s`."""
CLOSE_S = 30.0
"""How long workers and database may take to close, after that."""
DRAIN_TICK_S = 0.05
BACKLOG = 4096
"""Connections that wait to be taken."""
RENEW_S = 10.0
"""How often it is checked that no other server has the database."""
LOCAL = Principal(LOCAL_TENANT, FROM_COMMAND_LINE, is_admin=True)
"""Whoever may write the database may do everything."""

log = logging.getLogger("plait.server")


@dataclass(frozen=True, slots=True)
class Listening:
    """What a person needs to know of a server that is up."""

    url: str
    models: tuple[str, ...]
    new_key: str | None
    """Made just now, as there was none."""
    load_s: float


def serve(settings: ServerSettings, on_listening: Callable[[Listening], None]) -> None:
    """Until SIGINT or SIGTERM. Raises what ended the service otherwise."""
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    with server_lock(settings) as lock:
        database = Database.open(settings.sqlalchemy_url)
        try:
            check_effective(settings, database)
            check_keys(settings, database)
        except BaseException:
            database.stop()
            raise
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, database, lock, on_listening))


def check_effective(settings: ServerSettings, database: Database) -> None:
    """Refuse settings that do not go with the data that is there."""
    stored = database.submit(lambda session: effective.get_effective(session)).result()
    problems = conflicts(stored, settings) if stored is not None else []
    if problems:
        raise ConfigError(
            "the settings do not go with the data of the server that ran here before:\n" + "\n".join(problems),
            f"Restore the old values, or choose another data_folder than {settings.data_folder}.",
        )


def check_keys(settings: ServerSettings, database: Database) -> None:
    """Where others can reach the address there must be a key."""
    if not is_loopback(settings.host) and not database.submit(tenants.has_keys).result():
        raise ConfigError(
            f'host = "{settings.host}" is not a loopback address, and there are no keys.',
            "Make one with `plait keys create` first: others can reach this address.",
        )


def keep_start(settings: ServerSettings, database: Database) -> str | None:
    """Store the settings that were started with, and make the first key if there is none.

    Once the service is up: a start that failed binds nobody to its settings, and makes no key that nobody has seen.
    """
    database.submit(effective.put_effective, effective_server_toml(settings)).result()
    if database.submit(tenants.has_keys).result():
        return None
    return create_key(database, LOCAL_TENANT, "admin", "made at the first start")


def create_key(database: Database, tenant_id: str, role: str, label: str, strict: bool = False) -> str:
    """A new key; nobody can read it again later."""
    request = CreateKeyRequest(tenant_id=tenant_id, role="admin" if role == "admin" else "member", label=label, strict=strict)
    return database.submit(new_key, request, LOCAL).result()[1]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(
    settings: ServerSettings,
    database: Database,
    lock: DatabaseLock | None,
    on_listening: Callable[[Listening], None],
) -> None:
    service = Service(settings, database)
    listener = _listen(settings)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, service.gate.close)
    keeping = asyncio.create_task(_keep(lock, service)) if lock is not None else None
    try:
        ready = await _unless_stopped(service, service.start())
        if ready is not None:
            new_key = await asyncio.to_thread(keep_start, settings, database)
            listener.listen(BACKLOG)  # Whoever is told of the address may connect to it.
            url = f"http://{_host_in_url(settings.host)}:{listener.getsockname()[1]}"
            on_listening(Listening(url, service.bases.names, new_key, ready.load_s))
            await _run_until_stopped(service, listener)
    finally:
        listener.close()
        if keeping is not None:
            keeping.cancel()
        await _close(service)


async def _close(service: Service) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await service.stop()
    except TimeoutError:
        log.critical("workers and database did not close within %g s; what was acknowledged is stored", CLOSE_S)
        os._exit(1)  # A thread that hangs would keep the process.
    service.tracing.close()


async def _unless_stopped(service: Service, starting: Coroutine[Any, Any, Ready]) -> Ready | None:
    """None: a signal came before the service was up."""
    start, stop = asyncio.create_task(starting), asyncio.create_task(service.gate.wait_until_closed())
    await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        return start.result()
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return None


async def _keep(lock: DatabaseLock, service: Service) -> None:
    """Two servers on one database would undo each other's work."""
    while True:
        await asyncio.sleep(RENEW_S)
        try:
            if not await asyncio.to_thread(lock.renew):
                log.error("the database is away, and with it the lock that keeps other servers off it")
        except StateError as error:
            service.fail(error)
            return


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            "Choose another port, or 0 for any that is free.",
        ) from error
    return listener


async def _run_until_stopped(service: Service, listener: socket.socket) -> None:
    """Ends in good order when a signal comes, or with what ended the service."""
    server = _Server(
        uvicorn.Config(
            make_app(service),
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=int(STOP_S),
            lifespan="off",
            backlog=BACKLOG,
            timeout_keep_alive=75,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    failing = asyncio.create_task(service.wait_until_failed())
    stopping = asyncio.create_task(service.gate.wait_until_closed())
    await asyncio.wait((serving, failing, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        await _drain(service, failing)
    service.gate.close()
    server.should_exit = True
    service.futures.release()
    await serving
    for task in (failing, stopping):
        task.cancel()
    if service.failure is not None:
        raise service.failure


async def _drain(service: Service, failing: "asyncio.Task[Exception]") -> None:
    """Let what is under way end, as far as there is time; a second signal cuts it short. The rest goes on after a restart."""
    timeout_s, is_hurried = service.settings.stop_timeout_s, asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, is_hurried.set)
    log.info("stopping: new requests are turned away, those under way have %g s", timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s and not (is_hurried.is_set() or failing.done()) and service.num_under_way:
        await asyncio.sleep(DRAIN_TICK_S)
    if service.num_under_way:
        log.info("%d calls and samples are not finished: calls go on after a restart", service.num_under_way)


class _Server(uvicorn.Server):
    """Leaves the signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
