"""Joining the `torch.distributed` group of a training worker's ranks, all of them on one machine.

The ranks find each other, and gloo talks, on the loopback interface; the system chooses the ports.
"""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from plait.cluster.ranks.messages import JoinGroup
from plait.types.errors import ConfigError

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("lo", "lo0")
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
START_TIMEOUT_S = 600.0
"""Ranks load torch first, all at once."""


def listen() -> socket.socket:
    """For the store of the first rank, on a port that is free."""
    return socket.create_server((LOOPBACK, 0))


def join(settings: JoinGroup, listening: socket.socket | None = None) -> DeviceMesh:
    """Waits until all ranks have come. `listening` is the first rank's."""
    device = rank_device(settings.device, settings.rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for _, name in socket.if_nameindex():
        if name in LOOPBACK_NAMES:
            os.environ.setdefault(GLOO_INTERFACE, name)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", store=_store(settings, listening), rank=settings.rank,
        world_size=settings.num_ranks, timeout=timedelta(seconds=settings.timeout_s),
    )  # fmt: skip
    return DeviceMesh(device.type, torch.arange(settings.num_ranks))


def rank_device(kind: str, rank: int) -> torch.device:
    return torch.device(kind, rank) if kind == "cuda" else torch.device(kind)


def check_devices(kind: str, num_ranks: int) -> None:
    """Raises ConfigError if there is not a device for each rank."""
    if kind == "cuda" and torch.cuda.device_count() < num_ranks:
        raise ConfigError(
            f"workers.train_ranks is {num_ranks}, but torch sees {torch.cuda.device_count()} CUDA devices.",
            "Each rank needs one: lower it.",
        )


def _store(settings: JoinGroup, listening: socket.socket | None) -> dist.Store:
    return dist.TCPStore(
        LOOPBACK, settings.port, settings.num_ranks, is_master=listening is not None, timeout=timedelta(seconds=START_TIMEOUT_S),
        master_listen_fd=listening.detach() if listening is not None else None,
    )  # fmt: skip
