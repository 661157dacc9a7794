"""A start on data that is there already: settings that do not go with it are refused, and change nothing."""

from pathlib import Path

import pytest

from plait.config.load_server import load_server_settings
from plait.config.server import ServerSettings
from plait.server.database import effective
from plait.server.database.database import Database
from plait.server.serve import check_effective
from plait.types.errors import ConfigError


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
        check_effective(settings_in(tmp_path), database)
        stored = database.submit(effective.get_effective).result()
        with pytest.raises(ConfigError, match=difference) as caught:
            check_effective(settings_in(tmp_path, **variables), database)
        assert str(tmp_path) in caught.value.remedy
        assert database.submit(effective.get_effective).result() == stored
        check_effective(settings_in(tmp_path, LORA__MAX_RANK="256", PORT="9000"), database)
        assert "9000" in (database.submit(effective.get_effective).result() or "")
    finally:
        database.stop()
