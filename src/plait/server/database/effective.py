"""The settings that the server last ran with."""

from sqlalchemy.orm import Session

from plait.server.database.tables import EffectiveSettings


def get_effective(session: Session, name: str = "server") -> str | None:
    row = session.get(EffectiveSettings, name)
    return row.toml if row else None


def put_effective(session: Session, toml: str, name: str = "server") -> None:
    session.merge(EffectiveSettings(name=name, toml=toml))
