"""A base model under the names by which clients find it: its own, then its aliases."""

from pathlib import Path

from plait.config.server import ServerSettings


class ServedModels:
    def __init__(self, settings: ServerSettings, folder: Path) -> None:
        self._folder = folder
        self.names = settings.model_names[0]

    def alias_warning(self, name: str) -> str | None:
        """None of the model's own name."""
        own = self.names[0]
        return f"{name} is an alias here: the weights are those of {own}." if name != own else None

    @property
    def aliases_warning(self) -> str | None:
        """For whoever opens a session: its model's name need not be its model."""
        return " ".join(filter(None, map(self.alias_warning, self.names))) or None

    def tokenizer_id(self, name: str) -> str | None:
        """What a client on this machine loads the tokenizer from; None: what the model's name says."""
        return str(self._folder) if name == self.names[0] else None
