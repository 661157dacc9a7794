from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.server.url_signer import SECRET_FILE, UrlSigner
from plait.types.errors import ConfigError

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=4)


def test_the_secret_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    first = UrlSigner.of_folder(tmp_path / "data")
    assert (tmp_path / "data" / SECRET_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [SECRET_FILE]
    assert UrlSigner.of_folder(tmp_path / "data").is_valid(first.sign("a"), "a")
    assert not UrlSigner.of_folder(tmp_path / "other").is_valid(first.sign("a"), "a")


def test_a_damaged_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / SECRET_FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="holds 5 bytes"):
        UrlSigner.of_folder(tmp_path)


@given(texts, texts)
def test_a_signature_is_of_its_parts_only(signed: list[str], asked: list[str]) -> None:
    signer = UrlSigner(b"s" * 32)
    assert signer.is_valid(signer.sign(*signed), *asked) == (signed == asked)
    assert not signer.is_valid("é", *asked)
