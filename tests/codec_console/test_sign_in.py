"""Who is let into the console, by what, and how often."""

import pytest

from codec_console.keys import LIFETIME, make_key
from codec_console.sign_in import MOST_SESSIONS, SESSION_SECONDS, SignIn, SignInRefused
from gateway.errors import ConfigError
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE, FailedTries

TOKEN = "an-operators-token-of-40-characters-here"
HERE = "127.0.0.1"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sign_in(clock: Clock) -> SignIn:
    return SignIn(lambda: TOKEN, clock, FailedTries(clock))


def refused(sign_in: SignIn, given: str) -> SignInRefused:
    with pytest.raises(SignInRefused) as caught:
        sign_in.enter(given, HERE)
    return caught.value


@pytest.mark.parametrize("own", [True, False], ids=["of the start", "of the command"])
def test_key_signs_in_once(sign_in: SignIn, clock: Clock, own: bool) -> None:
    key = sign_in.key() if own else make_key(TOKEN, clock.now)

    cookie = sign_in.enter(key, HERE)

    assert sign_in.session(cookie) is not None
    assert "has been used" in refused(sign_in, key).words


def test_key_signs_in_for_ten_minutes_and_not_a_second_longer(sign_in: SignIn, clock: Clock) -> None:
    early, late = sign_in.key(), sign_in.key()
    clock.now += LIFETIME - 0.1
    sign_in.enter(early, HERE)
    clock.now += 0.2

    assert "older than ten minutes" in refused(sign_in, late).words


def test_key_that_was_used_before_a_restart_is_refused_after_it(sign_in: SignIn, clock: Clock) -> None:
    key = make_key(TOKEN, clock.now)
    sign_in.enter(key, HERE)
    clock.now += 1

    assert "before the gateway was started" in refused(SignIn(lambda: TOKEN, clock), key).words


def test_key_of_the_future_is_refused(sign_in: SignIn, clock: Clock) -> None:
    assert "made" in refused(sign_in, make_key(TOKEN, clock.now + 60)).words


def test_key_of_another_secret_and_every_changed_character_are_refused(sign_in: SignIn, clock: Clock) -> None:
    key = make_key(TOKEN, clock.now)
    tries = FailedTries(clock)
    sign_in = SignIn(lambda: TOKEN, clock, tries)
    changed = [f"{key[:at]}{'A' if key[at] != 'A' else 'B'}{key[at + 1 :]}" for at in range(len(key))]
    for each in (make_key("another", clock.now), "", ".", "..", "1.2.3", "ü", "x" * 9999, *changed):
        clock.now += 5.1  # as slowly as guesses are looked at
        assert "neither" in refused(sign_in, each).words


def test_operators_token_signs_in_again_and_again(sign_in: SignIn) -> None:
    assert sign_in.enter(TOKEN, HERE) != sign_in.enter(TOKEN, HERE)


def test_session_ends_after_twelve_hours(sign_in: SignIn, clock: Clock) -> None:
    cookie = sign_in.enter(TOKEN, HERE)
    clock.now += SESSION_SECONDS - 1
    assert sign_in.session(cookie) is not None

    clock.now += 1

    assert sign_in.session(cookie) is None


def test_who_leaves_is_not_signed_in_any_more(sign_in: SignIn) -> None:
    cookie = sign_in.enter(TOKEN, HERE)
    sign_in.leave(cookie)

    assert sign_in.session(cookie) is None


def test_somebody_is_in_until_the_last_session_has_ended(sign_in: SignIn, clock: Clock) -> None:
    told = [sign_in.is_anybody_in()]
    first, second = sign_in.enter(TOKEN, HERE), sign_in.enter(TOKEN, HERE)
    told.append(sign_in.is_anybody_in())
    sign_in.leave(second)
    told.append(sign_in.is_anybody_in())
    sign_in.leave(first)
    told.append(sign_in.is_anybody_in())

    assert told == [False, True, True, False]


def test_nobody_is_in_once_the_last_session_is_over_though_its_cookie_never_comes_again(
    sign_in: SignIn, clock: Clock
) -> None:
    sign_in.enter(TOKEN, HERE)
    clock.now += 60
    sign_in.enter(TOKEN, HERE)
    told: list[bool] = []
    for passed in (SESSION_SECONDS - 60, 59, 1):
        clock.now += passed
        told.append(sign_in.is_anybody_in())

    assert told == [True, True, False]


def test_end_of_the_last_session_is_told_once(sign_in: SignIn, clock: Clock) -> None:
    told: list[bool] = []
    sign_in.when_nobody_is_in(lambda: told.append(sign_in.is_anybody_in()))
    first, second = sign_in.enter(TOKEN, HERE), sign_in.enter(TOKEN, HERE)
    for cookie in (first, first, "nobody's"):
        sign_in.leave(cookie)
    assert told == []
    sign_in.leave(second)
    assert told == [False]

    cookie = sign_in.enter(TOKEN, HERE)
    clock.now += SESSION_SECONDS
    assert sign_in.session(cookie) is None
    sign_in.enter(TOKEN, HERE)
    clock.now += SESSION_SECONDS
    sign_in.enter(TOKEN, HERE)
    clock.now += SESSION_SECONDS
    assert not sign_in.is_anybody_in()
    assert told == [False] * 4


def test_one_session_too_many_ends_the_oldest(sign_in: SignIn) -> None:
    cookies = [sign_in.enter(TOKEN, HERE) for _ in range(MOST_SESSIONS + 1)]

    assert [sign_in.session(each) is None for each in cookies] == [True, *[False] * MOST_SESSIONS]


def test_guesses_are_slowed_down_and_lock_nobody_out(sign_in: SignIn, clock: Clock) -> None:
    for _ in range(FAILURES_AT_ONCE):
        assert refused(sign_in, "guess").wait == 0

    assert refused(sign_in, "guess").wait == pytest.approx(5.0)
    assert sign_in.session(sign_in.enter(sign_in.key(), HERE)) is not None
    assert sign_in.session(sign_in.enter(TOKEN, HERE)) is not None


def test_nothing_is_let_in_where_the_token_can_not_be_read() -> None:
    def unreadable() -> str:
        raise ConfigError("others can read this token")

    sign_in = SignIn(unreadable)

    with pytest.raises(ConfigError):
        sign_in.enter("x", HERE)
    assert sign_in.session(sign_in.enter(sign_in.key(), HERE)) is not None


def test_cookie_of_nobody_is_nobody(sign_in: SignIn) -> None:
    assert [sign_in.session(each) for each in ("", "x", "\ud800")] == [None, None, None]
