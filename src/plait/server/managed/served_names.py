"""The base models that a task file over HTTP may name, and its settings on them. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from plait.config.known_keys import suggest_value
from plait.config.run import FurtherModelSettings, RunSettings
from plait.config.server import ServerSettings


class ServedNames:
    def __init__(self, server: ServerSettings) -> None:
        self._server = server
        self._own = {name: own for own, *aliases in server.model_names for name in (own, *aliases)}

    @property
    def names(self) -> tuple[str, ...]:
        """All, aliases too."""
        return tuple(self._own)

    def default(self, data: Mapping[str, Any]) -> Any:
        """What the file says of tasks that name none."""
        model = data.get("model")
        return model.get("path", self.names[0]) if isinstance(model, dict) else self.names[0]

    def unknown(self, data: Mapping[str, Any]) -> Iterator[str]:
        tasks = data.get("tasks")
        for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
            name = task.get("model") if isinstance(task, dict) else None
            if isinstance(name, str) and name not in self._own:
                known = suggest_value(name, self.names) or f"; it has {', '.join(self.names)}"
                yield f'tasks[{index}].model = "{name}": this server has no such base model{known}'

    def named(self, settings: RunSettings, data: Mapping[str, Any]) -> RunSettings:
        """With every task's base model by its own name, and only the base models that tasks use."""
        default = self._own[self.default(data)]
        named = {task.name: default if task.model is None else self._own[task.model] for task in settings.tasks}
        first = self._server.model.known_as
        tasks = tuple(
            task.model_copy(update={"model": None if named[task.name] == first else named[task.name]}) for task in settings.tasks
        )
        models = tuple(
            FurtherModelSettings(**model.model_dump(exclude={"aliases"}))
            for model in self._server.models
            if model.name in named.values()
        )
        return settings.model_copy(update={"tasks": tasks, "models": models})
