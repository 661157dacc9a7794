"""A cluster of equal nodes, and when nodes fail."""

import msgspec

from plait.placement.resource_view import Bytes, Node
from plait.simulation.costs import CostModel, RooflineCosts
from plait.simulation.hardware import Accelerator
from plait.simulation.model_shapes import model_shape
from plait.types.errors import ConfigError

MOST_LANES = 16
"""Of nodes: so many have each their own timeline."""


class ClusterShape(msgspec.Struct, frozen=True):
    """`state_share`: of a device's memory, for what stays resident between calls; the rest is for activations."""

    accelerator: Accelerator
    num_devices: int
    nodes_per_group: int = 32
    host_bytes: int = 2 * 10**12
    """Of a node."""
    disk_bytes: int = 8 * 10**12
    state_share: float = 0.6
    switch_s: float = 2.0
    """Of each load, besides its bytes: Weave (OSDI'26) measured about 2 s for a warm switch."""

    def __post_init__(self) -> None:
        if self.num_devices < 1 or self.num_devices % self.devices_per_node or self.nodes_per_group < 1:
            raise ConfigError(
                f"num_devices is {self.num_devices}, nodes_per_group {self.nodes_per_group}.",
                f"Give a multiple of the {self.devices_per_node} devices of a node, and 1 node or more in a group.",
            )
        if not 0 < self.state_share <= 1 or self.switch_s < 0:
            raise ConfigError(
                f"state_share is {self.state_share}, switch_s {self.switch_s}.", "Give a share, and seconds of 0 or more."
            )

    @property
    def devices_per_node(self) -> int:
        return self.accelerator.devices_per_node

    def nodes(self) -> list[Node]:
        memory = Bytes(int(self.accelerator.memory_bytes), self.host_bytes, self.disk_bytes)
        return [
            Node(f"node-{number:04}", f"row-{number // self.nodes_per_group:02}", self.devices_per_node, memory)
            for number in range(self.num_devices // self.devices_per_node)
        ]

    def lane_of(self, node: Node) -> str:
        """Whose timeline it is on: its own in a small cluster, its row's in a large one."""
        return node.node_id if self.num_devices // self.devices_per_node <= MOST_LANES else node.node_group

    def costs(self, model: str, num_devices: int) -> CostModel:
        return RooflineCosts(self.accelerator, model_shape(model), num_devices)


class NodeFailure(msgspec.Struct, frozen=True):
    """It leaves at `at_s` with all that was on it, and is back, empty, after `down_s`."""

    node_id: str
    at_s: float
    down_s: float = float("inf")
