import msgspec
import pytest

from plait.transport import Codec


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    number: int


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    text: str
    values: tuple[float, ...] = ()


def test_union_round_trip() -> None:
    codec = Codec[Ping | Pong](Ping | Pong)
    for message in (Ping(3), Pong("a", (1.5, float("inf")))):
        assert codec.decode(codec.encode(message)) == message


def test_stranger_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        Codec[Ping](Ping).decode(Codec[Pong](Pong).encode(Pong("x")))
