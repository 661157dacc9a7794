"""What a tenant used, as the Tinker API tells it: an event for each hour, model and kind of use. Nothing has a price."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from plait.server.database.checkpoints import StoredByProject
from plait.server.database.tables import UsageRow
from plait.server.database.usage import HOUR_FORMAT
from plait.server.errors import ServiceError
from plait.server.wire.models.accounts import (
    CheckpointStorageResponse,
    PrefillUsage,
    SampledUsage,
    StorageItem,
    TrainingUsage,
    UsageEvent,
    UsageQuery,
)
from plait.server.wire.models.base import HOUR_S

BYTES_PER_GIGABYTE = 1_000_000_000
MAX_ROWS = 100_000
LAST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
TokenUsage = TrainingUsage | PrefillUsage | SampledUsage


def window_s(query: UsageQuery) -> tuple[float, float]:
    """In seconds since the epoch. Raises ServiceError unless both ends are full hours (UTC) since 1970."""
    for name, time in (("starting_on", query.starting_on), ("ending_before", query.ending_before)):
        if not 0 <= time.timestamp() < LAST_S:
            raise ServiceError(f"{name} is {time.isoformat()}.", "Give a time from 1970 to 9998.")
        if time.timestamp() % HOUR_S:
            raise ServiceError(f"{name} is {time.isoformat()}, which is no full hour.", "Use is counted by the hour (UTC).")
    return query.starting_on.timestamp(), query.ending_before.timestamp()


def usage_events(rows: Iterable[UsageRow]) -> list[UsageEvent]:
    """By hour; within one by the number of tokens, the most first."""
    events = [_event(row, info) for row in rows for info in _infos(row) if info.token_count]
    return sorted(events, key=lambda event: (event.bucket_start, -_tokens(event)))


def _infos(row: UsageRow) -> tuple[TokenUsage, ...]:
    return (
        TrainingUsage(token_count=row.trained_tokens),
        PrefillUsage(cached=False, token_count=row.prompt_tokens),
        PrefillUsage(cached=True, token_count=row.cached_tokens),
        SampledUsage(token_count=row.sampled_tokens),
    )


def _event(row: UsageRow, info: TokenUsage) -> UsageEvent:
    start = datetime.strptime(row.hour, HOUR_FORMAT).replace(tzinfo=UTC)
    return UsageEvent(
        bucket_start=start, bucket_end=start + timedelta(hours=1), base_model=row.base_model, user_id=row.tenant_id, event_info=info
    )  # fmt: skip


def _tokens(event: UsageEvent) -> int:
    return getattr(event.event_info, "token_count", 0)


def storage(rows: Sequence[StoredByProject], tenant_id: str, project_id: str | None) -> CheckpointStorageResponse:
    """By project; of one, if it is named."""
    items = [
        StorageItem(
            project_id=row.project_id, org_user_urn=tenant_id, checkpoint_count=row.num_checkpoints, size_bytes=row.size_bytes,
            size_gigabytes=row.size_bytes / BYTES_PER_GIGABYTE,
        )
        for row in rows
        if project_id in (None, row.project_id)
    ]  # fmt: skip
    return CheckpointStorageResponse(data=items)
