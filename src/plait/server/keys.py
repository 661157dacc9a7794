"""Making and checking the keys with which clients identify themselves.

A key is `tml-ID-SECRET`. The id is public: it names the key in lists and logs. Only a digest of the whole key is stored; as the
secret is 256 random bits, a plain hash cannot be turned back by guessing.
"""

import hashlib
import hmac
import secrets

PREFIX = "tml"
"""The SDK takes no key without it."""
ID_BYTES = 6
SECRET_BYTES = 32


def make_key() -> tuple[str, str]:
    """A new key: its public id, and the key itself, which nobody can recover later."""
    key_id = secrets.token_hex(ID_BYTES)
    return key_id, f"{PREFIX}-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"


def key_id_of(key: str) -> str | None:
    """The public id in a key; None if it is no key of ours."""
    prefix, _, rest = key.partition("-")
    key_id, _, secret = rest.partition("-")
    return key_id if prefix == PREFIX and key_id and secret else None


def digest(key: str) -> str:
    """SHA-256 of the key, in hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def matches(key: str, secret_digest: str) -> bool:
    """Whether the digest is this key's; takes the same time wherever they differ."""
    return hmac.compare_digest(digest(key), secret_digest)
