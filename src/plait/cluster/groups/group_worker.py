"""The program of a worker group, run in a process, a thread or an actor, as the executor says.

A plain loop like `cluster.worker`'s, over all deployments of the group.
"""

import torch

from plait.cluster.executors.carrier import WorkerLink
from plait.cluster.groups.group_host import GroupHost
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.messages import ConfigureGroup, GroupReady, from_group, to_group
from plait.cluster.machine_checks import pick_device
from plait.transport import ParentLink


def serve(link: WorkerLink) -> None:
    """Until the controller is gone."""
    frame = link.receive()
    assert frame is not None
    settings = to_group.decode(frame)
    assert isinstance(settings, ConfigureGroup)
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    device = pick_device(settings.device)
    memory = GroupMemory(settings, torch.device(device))
    link.send(from_group.encode(GroupReady(device)))
    try:
        _work(link, GroupHost(lambda said: link.send(from_group.encode(said)), memory))
    except EOFError:
        return  # Every finished step is durable.
    finally:
        memory.close()


def _work(link: WorkerLink, host: GroupHost) -> None:
    while True:
        if not host.has_work:
            host.go_idle()
        frame = link.receive(0.0 if host.has_work else None)
        while frame is not None:
            host.handle(to_group.decode(frame))
            frame = link.receive(0.0)
        host.work()


def main() -> None:
    serve(ParentLink.from_arguments())


if __name__ == "__main__":
    main()
