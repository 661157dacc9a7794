"""What the first rank of a training group tells the others. All ranks, the first one too, do the same in the same order."""

import msgspec

from plait.transport import Codec
from plait.types.datum import Datum


class JoinGroup(msgspec.Struct, frozen=True, tag="join"):
    """The first message to a rank."""

    rank: int
    num_ranks: int
    port: int
    """On the loopback interface, where the first rank has the store by which they find each other."""
    timeout_s: float
    device: str
    """Kind of device: each rank has one of its own."""
    dtype: str
    threads: int
    model_path: str
    micro_batch_tokens: int
    checkpoint_layers: bool


class Source(msgspec.Struct, frozen=True):
    """Where a policy's weights and moments lie; each rank reads what belongs to its slices."""

    weights: str = ""
    """Empty: the base itself."""
    optimizer: str = ""
    """Empty: moments start anew."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Make the trainer of policy `key`."""

    key: int
    source: Source


class Load(msgspec.Struct, frozen=True, tag="load"):
    key: int
    source: Source


class Save(msgspec.Struct, frozen=True, tag="save"):
    key: int
    weights: str
    optimizer: str


class StartPass(msgspec.Struct, frozen=True, tag="start_pass"):
    """The pass of the policy from now on; `loss_json` empty: forward only."""

    key: int
    datums: tuple[Datum, ...]
    loss_json: str
    every_position: bool


class RunSlice(msgspec.Struct, frozen=True, tag="run_slice"):
    key: int


class Step(msgspec.Struct, frozen=True, tag="step"):
    key: int
    optimizer_json: str
    learning_rate: float | None


class Discard(msgspec.Struct, frozen=True, tag="discard"):
    key: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    key: int


Command = Open | Load | Save | StartPass | RunSlice | Step | Discard | Close
to_rank: Codec[JoinGroup | Command] = Codec(JoinGroup | Command)
