"""What was sampled from a strict model is known to the next server too."""

import asyncio
from pathlib import Path

from sqlalchemy.orm import Session

from plait.operations.provenance import SampledSequence
from plait.server.certificates import Certifier, sampled_now
from plait.server.database import sequences
from plait.server.database.database import Database
from plait.server.database.tables import Model
from plait.types.policy import PolicyVersion
from tests.server.database.rows import fill

MODEL = "s:train:0"


def sampled(version: int, model_id: str = MODEL) -> SampledSequence:
    return sampled_now("ann", "s", PolicyVersion("ann", model_id, version), 3, (7, 8, version))


def opened(folder: Path, is_strict: bool) -> Database:
    database = Database.open(f"sqlite:///{folder / 'plait.db'}")

    def prepare(session: Session) -> None:
        fill(session)
        model = session.get_one(Model, MODEL)
        model.user_metadata = {"policy": "strict"} if is_strict else None

    database.submit(prepare).result()
    return database


def test_sequences_of_strict_models_outlive_the_process(tmp_path: Path) -> None:
    database = opened(tmp_path, is_strict=True)

    async def check() -> None:
        first, second = Certifier(database), Certifier(database)
        await first.resume()
        assert first.is_strict(MODEL)
        known = {f"r:{version}": sampled(version) for version in range(3)}
        await first.record({**known, "other": sampled(0, "base")})
        await second.resume()
        found = second._provenance._sequences
        assert list(found) == list(known)
        assert [(s.policy, s.tokens, s.num_prompt_tokens) for s in found.values()] == [
            (s.policy, s.tokens, s.num_prompt_tokens) for s in known.values()
        ]
        await first.record({"r:0": sampled(9)})  # Sampled again under its id.
        rows = await database.run(sequences.sequences_since, 0.0, 1 << 20)
        assert [(row.sequence_id, row.version) for row in rows] == [("r:1", 1), ("r:2", 2), ("r:0", 9)]
        assert [row.sequence_id for row in await database.run(sequences.sequences_since, 0.0, 24)] == ["r:2", "r:0"]
        await database.run(sequences.drop_sequences, rows[0].sampled_s)
        assert len(await database.run(sequences.sequences_since, 0.0, 1 << 20)) == 2

    asyncio.run(check())
    database.stop()


def test_of_other_models_nothing_is_stored(tmp_path: Path) -> None:
    database = opened(tmp_path, is_strict=False)

    async def check() -> None:
        certifier = Certifier(database)
        await certifier.resume()
        await certifier.record({"r:0": sampled(0)})
        assert await database.run(sequences.sequences_since, 0.0, 1 << 20) == []

    asyncio.run(check())
    database.stop()
