"""Pairs of row and target that several datums share are computed once."""

import torch

from plait.training.counted import counted_rows
from plait.training.packing import pack
from plait.types.datum import Datum

CPU = torch.device("cpu")


def datum(*suffix: int) -> Datum:
    tokens = (1, 2, 3, *suffix)
    return Datum(tokens[:-1], tokens[1:], weights=(1.0,) * (len(tokens) - 1))


def test_members_of_a_group_share_the_targets_of_their_prefix() -> None:
    datums = [datum(4, 5), datum(6, 7)]
    (batch,) = pack(datums, 64)
    counted = counted_rows(batch, datums, every_position=True, device=CPU)
    assert counted.lengths == [4, 4]
    assert len(counted.rows_M) == 6  # Two targets of the prefix, two of each suffix; the prefix's last row has two targets.
    targets = counted.spread(counted.targets_M).split(counted.lengths)
    for member, targets_T in zip(counted.members, targets, strict=True):
        assert tuple(targets_T.tolist()) == datums[member].target_tokens


def test_temperature_tells_pairs_apart() -> None:
    datums = [datum(4, 5), Datum(datum(4, 6).tokens, datum(4, 6).target_tokens, temperature=0.5)]
    (batch,) = pack(datums, 64)
    counted = counted_rows(batch, datums, every_position=True, device=CPU)
    assert counted.pairs_N is None


def test_without_anything_shared_pairs_are_as_they_are() -> None:
    datums = [Datum((1, 2), (2, 3), weights=(0.0, 1.0)), Datum((4, 5), (5, 6), weights=(0.0, 1.0))]
    (batch,) = pack(datums, 64)
    counted = counted_rows(batch, datums, every_position=False, device=CPU)
    assert counted.pairs_N is None
    assert counted.spread(counted.targets_M).tolist() == [3, 6]
