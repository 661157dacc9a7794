"""Processes that read and write one machine's memory at the same time, and are killed."""

import os
import signal
import subprocess
import sys
import time

from plait.kv.host_tier import HostTier
from plait.kv.segment import Rank
from tests.kv.blocks import PAYLOAD_BYTES, links_of, payload_of, record_of, shared

WRITER = """
import sys
from plait.kv.host_tier import HostTier
from plait.kv.segment import Rank, Segment
from tests.kv.blocks import PAYLOAD_BYTES, links_of, record_of

tier = HostTier.attach(sys.argv[1], [], PAYLOAD_BYTES)
links = links_of(range(4 * 30))
if sys.argv[2] == "forever":
    print("ready", flush=True)
    while True:
        for link in links:
            tier.put(record_of(link), Rank.RELEASED, 1)
fill = Segment._payload
def half(self, slot):
    class Half:
        def __setitem__(self, where, payload):
            fill(tier._own, slot)[: PAYLOAD_BYTES // 2] = payload[: PAYLOAD_BYTES // 2]
            print("half", flush=True)
            sys.stdin.read()
    return Half()
for link in links[:4]:
    tier.put(record_of(link), Rank.EXPECTED, 1)
Segment._payload = half
tier._own._ways_are_full = True
tier.put(record_of(links[4]), Rank.EXPECTED, 1)
"""


def start_writer(path: str, how: str) -> subprocess.Popen[str]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline().strip() in ("ready", "half")
    return writer


def kill(writer: subprocess.Popen[str]) -> None:
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()


def test_reader_of_a_busy_writer_finds_right_blocks_or_none() -> None:
    with shared(10, 2) as paths:
        tier = HostTier.attach(paths[1], [paths[0]], PAYLOAD_BYTES)
        writer = start_writer(paths[0], "forever")
        links, num_found, start_s = links_of(range(4 * 30)), 0, time.monotonic()
        while time.monotonic() < start_s + 1.5 or num_found <= 10:
            assert time.monotonic() < start_s + 120, "nothing is found"
            for link in links:
                record, is_moved = tier.read(link.key)
                if record is not None:
                    num_found += 1
                    assert is_moved
                    assert record.link == link
                    assert bytes(record.payload) == payload_of(link)
        kill(writer)
        assert tier.counters.corrupt == 0, "a block that is being replaced is missing, not corrupt"
        tier.close()


def test_writer_killed_in_the_middle_of_a_write() -> None:
    """The block it was writing is missing; the others are whole; who takes its place goes on with them."""
    with shared(8) as paths:
        kill(start_writer(paths[0], "half"))
        links = links_of(range(4 * 30))
        for tier in (HostTier.attach(paths[0], [], PAYLOAD_BYTES) for _ in range(2)):
            assert [bytes(record.payload) if (record := tier.read(link.key)[0]) else None for link in links[:5]] == [
                *map(payload_of, links[:4]), None,
            ]  # fmt: skip
        tier.put(record_of(links[4]), Rank.KEPT, 1)
        assert tier.read(links[4].key) == (record_of(links[4]), False)
        assert tier.counters.corrupt == 0


def test_anybody_may_release_and_use_again() -> None:
    with shared(8, 2) as paths:
        first, second = (HostTier.attach(path, [other], PAYLOAD_BYTES) for path, other in (paths, reversed(paths)))
        link = links_of(range(4))[0]
        assert first.put(record_of(link), Rank.EXPECTED, 1) is None
        assert first.used_bytes == PAYLOAD_BYTES
        assert second.mark(link.key, Rank.RELEASED, 2)
        assert first.used_bytes == 0, "free as soon as it is released"
        assert second.put(record_of(link), Rank.EXPECTED, 1) is None
        assert (first.used_bytes, second.used_bytes) == (PAYLOAD_BYTES, 0), "one copy serves all"
        assert second.read(link.key) == (record_of(link), True)
