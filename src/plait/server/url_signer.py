"""Addresses that open without a key, for a while: signed with a secret that lies in the data folder.

A signature covers what is served and when it ends; nothing is stored for it. A new secret closes all addresses at once.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from plait.types.errors import ConfigError

SECRET_FILE = "url-secret"
SECRET_BYTES = 32


class UrlSigner:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of_folder(cls, folder: Path) -> "UrlSigner":
        """With the folder's secret; the first time it is made, readable by its owner only."""
        path = folder / SECRET_FILE
        if not path.exists():
            _make_secret(path)
        secret = path.read_bytes()
        if len(secret) != SECRET_BYTES:
            raise ConfigError(f"{path} holds {len(secret)} bytes; a secret has {SECRET_BYTES}.", "Remove it: a new one is made.")
        return cls(secret)

    def sign(self, *parts: str) -> str:
        return hmac.new(self._secret, _message(parts), hashlib.sha256).hexdigest()

    def is_valid(self, signature: str, *parts: str) -> bool:
        return hmac.compare_digest(signature.encode("utf-8", "replace"), self.sign(*parts).encode())


def _message(parts: tuple[str, ...]) -> bytes:
    """Each part with its length before it, so that no two lists of parts read alike."""
    return b"".join(b"%d:%s" % (len(part.encode()), part.encode()) for part in parts)


def _make_secret(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
