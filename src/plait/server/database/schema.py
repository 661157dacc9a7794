"""Bringing a database to the schema of this Plait.

- The revisions in `migrations/versions` are the only thing that makes or changes tables.
- An upgrade is one transaction: after any failure the database is as it was.
- A database of a newer schema, or with tables of unknown origin, is refused and left alone.
"""

from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from plait.server.database.errors import SchemaError
from plait.server.database.tables import Base

MIGRATIONS = Path(__file__).with_name("migrations")
UPGRADE_LOCK = 0x706C616974
"""Key of the PostgreSQL lock that keeps two servers from upgrading at once: "plait" in ASCII."""


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the database to the revision, or raise SchemaError."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        _check(connection, script)
        with EnvironmentContext(
            config, script, fn=lambda current, _context: script._upgrade_revs(revision, current), destination_rev=revision
        ) as environment:
            environment.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True)
            environment.run_migrations()


def current_revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _check(connection: Connection, script: ScriptDirectory) -> None:
    revision = MigrationContext.configure(connection).get_current_revision()
    known = {known.revision for known in script.walk_revisions()}
    if revision is None and (found := set(inspect(connection).get_table_names()) & set(Base.metadata.tables)):
        raise SchemaError(
            f"the database has tables that Plait did not make: {', '.join(sorted(found))}.", "Name an empty database."
        )
    if revision is not None and revision not in known:
        raise SchemaError(
            f"the database has schema {revision}, and this Plait knows none later than {script.get_current_head()}.",
            "Use the newer Plait that wrote it, or restore a back-up from before its upgrade.",
        )
