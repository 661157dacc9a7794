"""What a controller and the process of a worker group say to each other. Torch-free.

- What concerns a deployment carries its name. The messages inside are those of `cluster.messages`.
- Every RunCall is answered by one CallOver, after whatever the call itself answers; every Switch by one Switched.
- Whatever changes bytes on the device is answered with `footprints` (of all deployments, on the device or not) and `resident` (on
  the device or on their way there).
"""

import msgspec

from plait.cluster.messages import Configure, FromWorker, ToWorker
from plait.transport import Codec


class ConfigureGroup(msgspec.Struct, frozen=True, tag="configure_group", kw_only=True):
    """The first message to a group's process."""

    name: str
    threads: int
    device: str
    """As in `Configure`."""
    device_bytes: int
    """Most that all deployments on the device may take."""
    host_bytes: int | None
    """Of main memory, for state that is off the device; None: as much as there is."""
    host_folder: str
    """In memory (tmpfs); processes of a machine that share it keep equal contents once."""
    folder: str
    """For state that finds no room in main memory."""
    disk_bytes: int


class Host(msgspec.Struct, frozen=True, tag="host"):
    """Load a deployment; everything else leaves the device meanwhile. Its own answer is Ready or StartFailed."""

    call_id: str
    deployment: str
    settings: Configure


class Unhost(msgspec.Struct, frozen=True, tag="unhost"):
    """Let go of a deployment and all that it has; its calls are over. Answered by Unhosted."""

    deployment: str


class Pass(msgspec.Struct, frozen=True, tag="pass"):
    """Hand a message over at once: chunks of the turn that runs, or what needs no device."""

    deployment: str
    message: ToWorker


class RunCall(msgspec.Struct, frozen=True, tag="run_call"):
    call_id: str
    deployment: str
    message: ToWorker


class Switch(msgspec.Struct, frozen=True, tag="switch"):
    """`park` leave the device, `activate` comes to it."""

    park: tuple[str, ...]
    activate: str


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    """The deployment is to come to the device soon. Answered by Prefetched if it comes there beside the call that runs."""

    deployment: str
    leaving: tuple[str, ...] | None = None
    """Who leaves the device so that it fits beside the rest; None: it does not, and comes as near as it can."""


ToGroup = ConfigureGroup | Host | Unhost | Pass | RunCall | Switch | Prefetch


class GroupReady(msgspec.Struct, frozen=True, tag="group_ready"):
    device: str


class FromDeployment(msgspec.Struct, frozen=True, tag="from"):
    deployment: str
    message: FromWorker


class CallOver(msgspec.Struct, frozen=True, tag="call_over"):
    call_id: str
    service_s: float
    footprints: dict[str, int]
    resident: tuple[str, ...]


class Switched(msgspec.Struct, frozen=True, tag="switched"):
    activated: str
    tier: str
    """Where its state was."""
    load_s: float
    offloads_s: dict[str, float]
    """Of each deployment that has left the device."""
    footprints: dict[str, int]
    resident: tuple[str, ...]


class Prefetched(msgspec.Struct, frozen=True, tag="prefetched"):
    """It is on the device, unless it is not among `resident`."""

    deployment: str
    spent_s: float
    """Beside calls."""
    waited_s: float
    """By a call."""
    footprints: dict[str, int]
    resident: tuple[str, ...]


class Unhosted(msgspec.Struct, frozen=True, tag="unhosted"):
    deployment: str
    footprints: dict[str, int]
    resident: tuple[str, ...]


FromGroup = GroupReady | FromDeployment | CallOver | Switched | Prefetched | Unhosted

to_group: Codec[ToGroup] = Codec(ToGroup)
from_group: Codec[FromGroup] = Codec(FromGroup)
