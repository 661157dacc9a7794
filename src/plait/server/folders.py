"""Where a service's files lie, under its data folder."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from plait.server.tinker_path import SEGMENTS

SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class DataFolders:
    root: Path

    def steps(self, tenant_id: str, model_id: str) -> Path:
        """Records of a model's versions."""
        return self._model(tenant_id, model_id) / "steps"

    def checkpoint(self, tenant_id: str, model_id: str, kind: str, name: str) -> Path:
        return self._model(tenant_id, model_id) / kind / _segment(name)

    def snapshot(self, tenant_id: str, model_id: str, sampler_id: str) -> Path:
        """Weights of a sampler without a name."""
        return self._model(tenant_id, model_id) / SNAPSHOTS / _segment(sampler_id)

    def of_checkpoints(self) -> list[Path]:
        """All that is there of `checkpoint` and `snapshot`, temporaries too."""
        kinds = (*SEGMENTS.values(), SNAPSHOTS)
        return [folder for kind in kinds for folder in self.root.glob(f"tenants/*/models/*/{kind}/*")]

    def runs(self, tenant_id: str) -> Path:
        return self.root / "tenants" / _segment(tenant_id) / "runs"

    def of_runs(self) -> list[Path]:
        """All that is there of `runs`."""
        return list(self.root.glob("tenants/*/runs/*"))

    def uploads(self, tenant_id: str) -> Path:
        return self.root / "tenants" / _segment(tenant_id) / "uploads"

    def _model(self, tenant_id: str, model_id: str) -> Path:
        return self.root / "tenants" / _segment(tenant_id) / "models" / _segment(model_id)


def _segment(name: str) -> str:
    """A file name for any name: no separator, no way up, and not too long for a file system."""
    quoted = quote(name, safe=":@+= ")
    if quoted in (".", "..") or len(quoted) > 200:
        return hashlib.sha256(name.encode()).hexdigest()
    return quoted
