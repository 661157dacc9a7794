"""What a start leaves, and whether the next one goes with it: a start that fails changes nothing."""

from pathlib import Path

import pytest

from plait.config.load_server import load_server_settings
from plait.config.server import ServerSettings
from plait.server.database import effective
from plait.server.database.database import Database
from plait.server.serve import check_effective, check_keys, keep_start, serve
from plait.types.errors import ConfigError, PlaitError


def settings_in(folder: Path, **variables: str) -> ServerSettings:
    given = {"DATA_FOLDER": str(folder), "MODEL__PATH": "smollm2-135m-instruct", **variables}
    return load_server_settings(None, {f"PLAIT_SERVER__{name}": value for name, value in given.items()})


@pytest.mark.parametrize(
    ("variables", "difference"),
    [
        ({"LORA__ALPHA": "16"}, "lora.alpha"),
        ({"LORA__MAX_RANK": "8"}, "lora.max_rank"),
        ({"MODEL__DTYPE": "float32"}, "model.dtype"),
    ],
)
def test_a_conflicting_restart_is_refused_with_the_difference(tmp_path: Path, variables: dict[str, str], difference: str) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'plait.db'}")
    try:
        keep_start(settings_in(tmp_path), database)
        stored = database.submit(effective.get_effective).result()
        with pytest.raises(ConfigError, match=difference) as caught:
            check_effective(settings_in(tmp_path, **variables), database)
        assert str(tmp_path) in caught.value.remedy
        assert database.submit(effective.get_effective).result() == stored
        higher = settings_in(tmp_path, LORA__MAX_RANK="256", PORT="9000")
        check_effective(higher, database)
        keep_start(higher, database)
        assert "9000" in (database.submit(effective.get_effective).result() or "")
    finally:
        database.stop()


def test_a_start_that_failed_leaves_no_settings_and_no_key_behind(tmp_path: Path) -> None:
    with pytest.raises(PlaitError, match="no-such-model"):
        serve(settings_in(tmp_path, MODEL__PATH=str(tmp_path / "no-such-model"), PORT="0"), lambda _: None)
    database = Database.open(f"sqlite:///{tmp_path / 'plait.db'}")
    try:
        settings = settings_in(tmp_path)
        check_effective(settings, database)
        with pytest.raises(ConfigError, match="there are no keys"):
            check_keys(settings.model_copy(update={"host": "0.0.0.0"}), database)
        assert (keep_start(settings, database) or "").startswith("tml-"), "the first start that succeeds shows the first key"
        assert keep_start(settings, database) is None
    finally:
        database.stop()
