"""TensorBoard: a folder of event files per task, so that tasks overlay in one chart."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tensorboard.summary import Writer


class TensorBoardTracker:
    """Owns `folder` and writes it anew: with the log's history sent again, a resumed run is one curve without holes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Writer] = {}
        if folder.exists():
            shutil.rmtree(folder)

    def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
        if task not in self._writers:
            self._writers[task] = Writer(str(self._folder / task))
        for name, value in values.items():
            self._writers[task].add_scalar(name, value, step, wall_time=time_s)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
