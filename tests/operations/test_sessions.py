import pytest

from plait.operations.sessions import REMEMBERED_S, SessionGone, SessionTable, UnknownSession


def table(*session_ids: str) -> SessionTable:
    sessions = SessionTable(heartbeat_timeout_s=30)
    for session_id in session_ids:
        sessions.open(session_id, "ada", now=0)
    return sessions


def test_a_session_lives_while_its_heartbeats_come() -> None:
    sessions = table("s1", "s2")
    for now in range(10, 100, 10):
        sessions.heartbeat("s1", "ada", now)
        assert sessions.expired(now) == (["s2"] if now == 30 else []), "told once, as soon as it is so"
    assert sessions.is_live("s1")
    assert not sessions.is_live("s2")
    assert sessions.num_live == 1


def test_those_silent_longest_are_told_first() -> None:
    sessions = table("s1", "s2", "s3")
    sessions.heartbeat("s1", "ada", 5)
    assert sessions.expired(100) == ["s2", "s3", "s1"]


def test_a_lost_session_lives_again_with_its_next_heartbeat() -> None:
    sessions = table("s1")
    assert not sessions.heartbeat("s1", "ada", 1)
    assert sessions.expired(50) == ["s1"]
    assert sessions.heartbeat("s1", "ada", 60)
    assert sessions.is_live("s1")
    assert sessions.expired(60) == []
    assert sessions.expired(90) == ["s1"]


def test_a_finished_session_is_gone() -> None:
    sessions = table("s1")
    assert sessions.finish("s1", "ada", 10)
    assert not sessions.finish("s1", "ada", 11), "said twice, put away once"
    with pytest.raises(SessionGone, match="'s1' has finished"):
        sessions.heartbeat("s1", "ada", 12)
    assert sessions.expired(100) == []


def test_a_lost_session_that_finishes_has_been_put_away_already() -> None:
    sessions = table("s1")
    sessions.expired(50)
    assert not sessions.finish("s1", "ada", 60)
    with pytest.raises(SessionGone):
        sessions.heartbeat("s1", "ada", 61)
    assert sessions.expired(2 * REMEMBERED_S) == []
    with pytest.raises(UnknownSession):
        sessions.heartbeat("s1", "ada", 2 * REMEMBERED_S)


@pytest.mark.parametrize("session_id", ["s1", "s9"])
def test_another_tenants_session_is_as_unknown_as_none(session_id: str) -> None:
    sessions = table("s1")
    for call in (sessions.heartbeat, sessions.finish):
        with pytest.raises(UnknownSession, match=f"there is no session '{session_id}'"):
            call(session_id, "bob", 1)
    assert sessions.is_live("s1")


def test_what_has_ended_is_forgotten_after_a_day() -> None:
    sessions = table("s1", "s2")
    sessions.finish("s1", "ada", 0)
    sessions.expired(30)
    sessions.expired(30 + REMEMBERED_S)
    for session_id in ("s1", "s2"):
        with pytest.raises(UnknownSession):
            sessions.heartbeat(session_id, "ada", REMEMBERED_S)
        sessions.open(session_id, "ada", REMEMBERED_S)


def test_a_session_is_opened_once() -> None:
    with pytest.raises(ValueError, match="'s1' is in the table already"):
        table("s1", "s1")
