"""Draws worker groups, a line each."""

from collections.abc import Sequence

from rich.text import Text

from plait.observe.snapshot import GroupSnapshot
from plait.observe.text import one_line, percent


def group_lines(groups: Sequence[GroupSnapshot]) -> Text:
    return Text("\n").join(Text(f" {_group_text(group)}", style="dim", no_wrap=True, overflow="ellipsis") for group in groups)


def _group_text(group: GroupSnapshot) -> str:
    parts = [
        f"{one_line(group.group, 24)}: busy {percent(group.busy_share_recent)}, {percent(group.busy_share)} since start",
        f"{group.num_calls:,} calls",
        f"{group.num_switches:,} switches",
        f"{group.num_moves:,} moves here",
        one_line(", ".join(group.deployments) or "empty", 60),
    ]
    return " · ".join(parts)
