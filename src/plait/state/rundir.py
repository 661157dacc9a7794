"""The directory of one run: where everything lies, and the lock that keeps it to one process.

RUN/config.toml, RUN/events.jsonl, RUN/report.html, RUN/lock, and for each task RUN/tasks/<task>/steps/000012/ (a record, see
`records`), RUN/tasks/<task>/start/ (the adapter that it began from, if any), RUN/tasks/<task>/samples/000012.jsonl and
RUN/tasks/<task>/samples/evaluation-000012.jsonl.
"""

import itertools
from pathlib import Path

from plait.state.durable import make_folder, replace_file, sync_folder
from plait.state.records import STEP_DIGITS, step_folder
from plait.state.run_lock import RunLock, lock_holder
from plait.types.errors import StateError

DEFAULT_ROOT = Path("runs")
CONFIG_FILE = "config.toml"
TASKS_FOLDER = "tasks"


class RunDirectory:
    """Paths of one run. Making the object touches nothing; `create` and `open` do."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.name = self.path.name
        self.config = self.path / CONFIG_FILE
        self.events = self.path / "events.jsonl"
        self.report = self.path / "report.html"
        self.lock_file = self.path / "lock"
        self.tasks_folder = self.path / TASKS_FOLDER

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @classmethod
    def create(cls, root: Path, name: str, config_toml: str) -> "RunDirectory":
        """A new directory `root/name`, or `root/name-2`, `root/name-3`, ... when that name is taken."""
        try:
            make_folder(root.absolute())
            directory = cls(_make_unique(root, name))
        except OSError as error:
            raise StateError(f"cannot create a run in {root}: {error.strerror}.", "Choose another folder with --runs.") from error
        replace_file(directory.config, config_toml.encode())
        return directory

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run; a `StateError` says so when `path` is none."""
        if not is_run(path):
            raise StateError(f"{path} is not a run: it has no {CONFIG_FILE}.", "`plait status` lists the runs.")
        return cls(path)

    def steps_folder(self, task: str) -> Path:
        """The folder of the task's step records, as `records` and `retention` take it."""
        return self.tasks_folder / task / "steps"

    def step_folder(self, task: str, step: int) -> Path:
        return step_folder(self.steps_folder(task), step)

    def start_folder(self, task: str) -> Path:
        """Of the adapter that the task begins from, if it does."""
        return self.path / relative_start(task)

    def samples_folder(self, task: str) -> Path:
        return self.tasks_folder / task / "samples"

    def samples_file(self, task: str, step: int) -> Path:
        return self.samples_folder(task) / f"{step:0{STEP_DIGITS}d}.jsonl"

    def evaluation_file(self, task: str, version: int) -> Path:
        return self.samples_folder(task) / f"evaluation-{version:0{STEP_DIGITS}d}.jsonl"

    def list_tasks(self) -> list[str]:
        """Tasks that have written something."""
        return sorted(entry.name for entry in self.tasks_folder.iterdir()) if self.tasks_folder.is_dir() else []

    @property
    def has_begun(self) -> bool:
        """Its settings or its log are there."""
        return is_run(self.path) or self.events.exists()

    def lock(self) -> RunLock:
        """Take the run for this process until the lock is released; a `StateError` names the process that has it."""
        return RunLock(self.lock_file)

    def holder(self) -> int | None:
        """The process id that has the run now; None when nobody does."""
        return lock_holder(self.lock_file)


def relative_start(task: str) -> str:
    """`RunDirectory.start_folder`, from the run's directory."""
    return f"{TASKS_FOLDER}/{task}/start"


def is_run(path: Path) -> bool:
    return (path / CONFIG_FILE).is_file()


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunDirectory]:
    """Runs under `root`, the newest last."""
    found = [RunDirectory(entry) for entry in root.iterdir() if is_run(entry)] if root.is_dir() else []
    return sorted(found, key=lambda run: (run.config.stat().st_mtime_ns, run.name))


def find_run(name_or_path: str | None = None, root: Path = DEFAULT_ROOT) -> RunDirectory:
    """The run of that path, else of that name under `root`; without a name the newest one."""
    if name_or_path is None:
        runs = list_runs(root)
        if not runs:
            raise StateError(f"there is no run in {root.absolute()}.", "Start one with `plait run FILE.toml`, or name one.")
        return runs[-1]
    for candidate in (Path(name_or_path), root / name_or_path):
        if is_run(candidate):
            return RunDirectory(candidate)
    raise StateError(f"there is no run {name_or_path!r}{_known(root)}.", "Give a name from `plait status`, or a path.")


def _known(root: Path) -> str:
    names = [run.name for run in list_runs(root)]
    return f"; {root} has {', '.join(names)}" if names else f", and {root.absolute()} has none at all"


def _make_unique(root: Path, name: str) -> Path:
    for number in itertools.count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        sync_folder(root)
        return path
    raise AssertionError("unreachable")
