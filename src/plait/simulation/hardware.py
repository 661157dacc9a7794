"""Accelerators by their public specifications; `data/accelerators.toml` has the figures and their sources."""

import msgspec

from plait.simulation.catalogue import look_up


class Accelerator(msgspec.Struct, frozen=True):
    """One device. Rates are in one direction."""

    name: str
    flops: float
    """FLOP/s of dense matrix products in the dtype of training."""
    memory_bytes_per_s: float
    memory_bytes: float
    link_bytes_per_s: float
    """To other devices of its node."""
    network_bytes_per_s: float
    """Between nodes."""
    host_bytes_per_s: float
    disk_bytes_per_s: float
    devices_per_node: int


def accelerator(name: str, field: str = "accelerator") -> Accelerator:
    """Raises ConfigError naming `field` for an unknown one."""
    return look_up("accelerators", Accelerator, name, field)
