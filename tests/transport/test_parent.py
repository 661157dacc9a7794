import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.transport import ParentLink
from plait.transport.frames import MAX_FRAME_BYTES, encode_frame


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(messages=st.lists(st.binary(max_size=40), max_size=8), cuts=st.lists(st.integers(1, 30), min_size=1, max_size=50))
def test_frames_survive_any_fragmentation(messages: list[bytes], cuts: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = ParentLink(theirs)
        stream = b"".join(encode_frame(message) for message in messages)
        received = []
        while stream:
            cut = cuts[len(stream) % len(cuts)]
            ours.sendall(stream[:cut])
            stream = stream[cut:]
            while (message := link.receive(0)) is not None:
                received.append(message)
        assert received == messages


def test_timeout_keeps_a_partial_frame(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    link = ParentLink(theirs)
    frame = encode_frame(b"hello")
    ours.sendall(frame[:6])
    started_s = time.monotonic()
    assert link.receive(0.1) is None
    assert time.monotonic() - started_s > 0.09
    ours.sendall(frame[6:])
    assert link.receive(None) == b"hello"


def test_whole_frames_are_given_before_the_end(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    link = ParentLink(theirs)
    ours.sendall(encode_frame(b"last") + encode_frame(b"torn")[:5])
    ours.close()
    assert link.receive(0) == b"last"
    with pytest.raises(EOFError):
        link.receive(None)
    with pytest.raises(EOFError):
        link.send(b"x")


def test_threads_do_not_mix_their_frames(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    writer, reader = ParentLink(theirs), ParentLink(ours)

    def send(number: int) -> None:
        for _ in range(50):
            writer.send(bytes([number]) * 5000)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    frames = [reader.receive(60.0) for _ in range(200)]
    for thread in threads:
        thread.join()
    assert all(frame is not None and len(frame) == 5000 and len(set(frame)) == 1 for frame in frames)


def test_absurd_length_is_refused(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    ours.sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="longer than the limit"):
        ParentLink(theirs).receive(0)
