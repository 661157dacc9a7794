from pathlib import Path

import pytest

from plait.state.samples import SampleRecord, read_samples, write_samples
from plait.types.errors import StateError
from plait.types.policy import PolicyVersion
from plait.types.trajectory import Segment, Trajectory


def make_sample(index: int) -> SampleRecord:
    policy = PolicyVersion("local", "add", 3)
    segments = (Segment((1, 2)), Segment((5, 6), (-0.5, -0.1), policy, "stop_token"))
    trajectory = Trajectory("calculator", "e-1", 0, index, segments, reward=1.0, stop="done", metrics={"turns": 2.0})
    return SampleRecord("add", 3, trajectory, "1 + 2 = ?\u2028", ("3",), ("ok",))


def test_round_trip_and_replacement(tmp_path: Path) -> None:
    path = tmp_path / "samples" / "000003.jsonl"
    write_samples(path, [make_sample(0)])
    samples = [make_sample(index) for index in range(4)]
    write_samples(path, samples)
    assert read_samples(path) == samples
    assert [entry.name for entry in path.parent.iterdir()] == ["000003.jsonl"]


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "000003.jsonl"
    write_samples(path, [make_sample(0), make_sample(1)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StateError, match=r"000003.jsonl, line 2, is not a sample"):
        read_samples(path)
    with pytest.raises(StateError, match="cannot read"):
        read_samples(tmp_path / "absent.jsonl")
