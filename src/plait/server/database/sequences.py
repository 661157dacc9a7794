"""Sequences that were sampled from strict models: what their certificates need after a restart."""

from collections.abc import Iterable, Iterator

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from plait.server.database.tables import StoredSequence


def put_sequences(session: Session, sequences: list[StoredSequence]) -> None:
    """One of the same id takes the place of the first."""
    for sequence in sequences:
        session.merge(sequence)


def sequences_since(session: Session, since_s: float, max_bytes: int) -> list[StoredSequence]:
    """Oldest first; only the newest if all have more than `max_bytes` of tokens."""
    statement = select(StoredSequence).where(StoredSequence.sampled_s > since_s).order_by(StoredSequence.sampled_s.desc())
    return list(_up_to(max_bytes, session.scalars(statement)))[::-1]


def _up_to(max_bytes: int, sequences: Iterable[StoredSequence]) -> Iterator[StoredSequence]:
    num_bytes = 0
    for sequence in sequences:
        num_bytes += len(sequence.tokens)
        if num_bytes > max_bytes:
            return
        yield sequence


def drop_sequences(session: Session, before_s: float) -> None:
    session.execute(delete(StoredSequence).where(StoredSequence.sampled_s <= before_s))
