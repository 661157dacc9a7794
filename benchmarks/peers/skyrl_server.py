"""SkyRL's Tinker server with its JAX backend, started without `uv run`, which it otherwise asks for: in its own environment.

python skyrl_server.py BASE_MODEL FOLDER PORT
"""

import runpy
import sys
import typing
from pathlib import Path

import typing_extensions

MAX_ADAPTERS, MAX_RANK = 4, 8
ENGINE = "--engine"


def main() -> None:
    typing.TypedDict = typing_extensions.TypedDict  # SkyRL asks for Python 3.12; on 3.11 it lacks but this.
    if sys.argv[1] == ENGINE:
        sys.argv.pop(1)
        runpy.run_module("skyrl.tinker.engine", run_name="__main__", alter_sys=True)
    else:
        serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))


def serve(base_model: str, folder: Path, port: int) -> None:
    import skyrl.tinker.api as api
    import uvicorn
    from skyrl.tinker.config import EngineConfig, config_to_argv

    api._build_uv_run_cmd_engine = lambda parent, config: [sys.executable, __file__, ENGINE, *config_to_argv(config)]
    api.app.state.engine_config = EngineConfig(
        base_model=base_model, backend="jax", backend_config={"max_lora_adapters": MAX_ADAPTERS, "max_lora_rank": MAX_RANK},
        checkpoints_base=str(folder / "checkpoints"), database_url=f"sqlite:///{folder / 'tinker.db'}",
    )  # fmt: skip
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning", timeout_keep_alive=75)


if __name__ == "__main__":
    main()
