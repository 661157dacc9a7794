"""Keys are long, unlike each other, and recognised by their digest only."""

from hypothesis import given
from hypothesis import strategies as st

from plait.server.keys import digest, key_id_of, make_key, matches


def test_keys_are_what_the_sdk_takes_and_nobody_guesses() -> None:
    keys = dict(make_key() for _ in range(1000))
    assert len(keys) == len(set(keys.values())) == 1000
    for key_id, key in keys.items():
        secret = key.removeprefix(f"tml-{key_id}-")
        assert len(secret) * 6 >= 192
        assert key_id_of(key) == key_id


def test_a_key_matches_its_own_digest_only() -> None:
    (_, key), (_, other) = make_key(), make_key()
    assert matches(key, digest(key))
    assert not matches(other, digest(key))
    assert not matches(key[:-1], digest(key))
    assert key not in digest(key)
    assert len(digest(key)) == 64


@given(st.text(st.characters()))
def test_whatever_a_client_sends_is_refused(text: str) -> None:
    _, key = make_key()
    assert not matches(text, digest(key))
    assert key_id_of(text) is None or text.startswith("tml-")
