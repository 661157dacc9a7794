"""The page of the service says what its settings and metrics are."""

from docs.make_service_tables import PAGE, with_tables
from plait.cli.serve import snippet
from plait.config.known_keys import walk_keys
from plait.config.run import RunSettings
from plait.config.server import ServerSettings
from plait.server.managed.submission import read_submission
from tests.docs.pages import MODEL, blocks_of


def test_the_tables_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run: python docs/make_service_tables.py"


def test_every_setting_is_on_the_page() -> None:
    page, of_a_run = PAGE.read_text(encoding="utf-8"), set(RunSettings.model_fields)
    own = [key for key in walk_keys(ServerSettings) if key.partition(".")[0] not in of_a_run]
    tables = {key.partition(".")[0] for key in own if "." in key}
    assert len(own) > 20
    assert not [key for key in own if key not in tables and f"| `{key}` |" not in page]


def test_the_pages_program_is_the_one_that_a_start_shows() -> None:
    program = next(block.text for block in blocks_of(PAGE) if block.name == "first_client.py")
    assert program.replace("\n\n", "\n").strip() == snippet(MODEL)


def test_the_pages_task_file_would_be_taken() -> None:
    file = next(block.text for block in blocks_of(PAGE) if block.name == "tasks.toml")
    assert [task.name for task in read_submission(file, ServerSettings()).settings.tasks] == ["gcd"]
