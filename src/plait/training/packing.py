"""Cutting datums into micro-batches of rows in which a common beginning is computed once.

- Pure and deterministic: the result depends on the set of datums, never on the order of their arrival.
- A group is a set of datums with one shared prefix; its rows are the prefix, then each datum's suffix, one after another.
  Prefixes are chosen so that the fewest rows remain, among groupings that keep lexicographic neighbours together.
- A micro-batch has at most `micro_batch_tokens` rows; only a single datum longer than that exceeds it, alone.
- Every datum keeps at least one row of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import msgspec

from plait.types.datum import Datum
from plait.types.errors import ConfigError

PER_POSITION_FIELDS = ("target_tokens", "weights", "logprobs", "advantages", "sequence_ratio_mask")


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """Datums `members` (indices into the packed sequence) that share their first `num_prefix_tokens` tokens.

    Suffix i takes `suffix_lengths[i]` rows; `first_row` is the group's first row in its micro-batch.
    """

    members: tuple[int, ...]
    num_prefix_tokens: int
    suffix_lengths: tuple[int, ...]
    first_row: int = 0

    @property
    def num_rows(self) -> int:
        return self.num_prefix_tokens + sum(self.suffix_lengths)

    @property
    def suffix_starts(self) -> tuple[int, ...]:
        """First row of each suffix."""
        start = self.first_row + self.num_prefix_tokens
        return tuple(accumulate(self.suffix_lengths[:-1], initial=start))


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch: R rows, each a token at a position."""

    groups: tuple[PackedGroup, ...]
    tokens_R: tuple[int, ...]
    positions_R: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Datums of this micro-batch, in the order of their rows."""
        return tuple(chain.from_iterable(group.members for group in self.groups))

    def rows(self) -> dict[int, tuple[int, ...]]:
        """For each member the row of each of its positions; rows of a shared prefix appear for all its members."""
        return {
            member: (*range(g.first_row, g.first_row + g.num_prefix_tokens), *range(start, start + length))
            for g in self.groups
            for member, start, length in zip(g.members, g.suffix_starts, g.suffix_lengths, strict=True)
        }


def pack(datums: Sequence[Datum], micro_batch_tokens: int) -> list[PackedBatch]:
    """Micro-batches that hold every datum once. Raises ConfigError for a datum that is empty, ragged or of no temperature."""
    for index, datum in enumerate(datums):
        _check(index, datum)
    order = sorted(range(len(datums)), key=lambda index: _content(datums[index]))
    groups = _share_prefixes([datums[index].tokens for index in order], order, micro_batch_tokens)
    return [_lay_out(bin_, datums) for bin_ in _fill(groups, micro_batch_tokens)]


def _check(index: int, datum: Datum) -> None:
    if not datum.tokens:
        raise ConfigError(f"datum {index} has no tokens.", "Leave it out.")
    if datum.temperature <= 0:
        raise ConfigError(f"datum {index} has temperature {datum.temperature}.", "Train on tokens drawn at a temperature above 0.")
    for field in PER_POSITION_FIELDS:
        length = len(getattr(datum, field))
        if length != len(datum.tokens) and (length or field == "target_tokens"):
            raise ConfigError(f"datum {index} has {len(datum.tokens)} tokens and {length} {field}.", "Give one for each position.")


def _content(datum: Datum) -> tuple:
    return msgspec.structs.astuple(datum)


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _share_prefixes(sorted_tokens: Sequence[tuple[int, ...]], order: Sequence[int], limit: int) -> list[PackedGroup]:
    """Cut the sorted sequences into runs so that the fewest rows remain; dynamic programming over the ends of runs."""
    common = [_common_length(a, b) for a, b in pairwise(sorted_tokens)]
    fewest, begin_of = [0], [0]
    for end in range(1, len(sorted_tokens) + 1):
        rows, begin = min((fewest[begin] + rows, begin) for begin, rows in _runs_that_end_at(end, sorted_tokens, common, limit))
        fewest.append(rows)
        begin_of.append(begin)
    return _groups(sorted_tokens, order, common, begin_of)


def _runs_that_end_at(
    end: int, sorted_tokens: Sequence[tuple[int, ...]], common: Sequence[int], limit: int
) -> Iterator[tuple[int, int]]:
    """(begin, rows) of every run up to `end` (exclusive) that shares something and fits; always of the run of one."""
    total, shared = 0, len(sorted_tokens[end - 1])
    for begin in range(end - 1, -1, -1):
        length = len(sorted_tokens[begin])
        total += length
        shared = min(shared, length - 1, common[begin] if begin < end - 1 else length)
        rows = total - shared * (end - begin - 1)
        if begin < end - 1 and (shared == 0 or rows > limit):
            return  # a longer run shares no more and has more rows
        yield begin, rows


def _groups(
    sorted_tokens: Sequence[tuple[int, ...]], order: Sequence[int], common: Sequence[int], begin_of: Sequence[int]
) -> list[PackedGroup]:
    groups: list[PackedGroup] = []
    end = len(sorted_tokens)
    while end:
        begin = begin_of[end]
        lengths = [len(tokens) for tokens in sorted_tokens[begin:end]]
        prefix = min([*common[begin : end - 1], min(lengths) - 1]) if end - begin > 1 else 0
        groups.append(PackedGroup(tuple(order[begin:end]), prefix, tuple(length - prefix for length in lengths)))
        end = begin
    return groups[::-1]


def _fill(groups: Sequence[PackedGroup], limit: int) -> list[list[PackedGroup]]:
    """First-fit decreasing; groups of equal size keep their order."""
    bins: list[list[PackedGroup]] = []
    sizes: list[int] = []
    for group in sorted(groups, key=lambda group: -group.num_rows):
        target = next((i for i, size in enumerate(sizes) if size + group.num_rows <= limit), len(bins))
        if target == len(bins):
            bins.append([])
            sizes.append(0)
        bins[target].append(group)
        sizes[target] += group.num_rows
    return bins


def _lay_out(groups: Sequence[PackedGroup], datums: Sequence[Datum]) -> PackedBatch:
    placed: list[PackedGroup] = []
    tokens: list[int] = []
    positions: list[int] = []
    for group in groups:
        placed.append(PackedGroup(group.members, group.num_prefix_tokens, group.suffix_lengths, len(tokens)))
        prefix = group.num_prefix_tokens
        tokens += datums[group.members[0]].tokens[:prefix]
        positions += range(prefix)
        for member, length in zip(group.members, group.suffix_lengths, strict=True):
            tokens += datums[member].tokens[prefix:]
            positions += range(prefix, prefix + length)
    return PackedBatch(tuple(placed), tuple(tokens), tuple(positions))
