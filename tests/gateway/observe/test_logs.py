"""What a log line may carry, and where it goes."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigError
from gateway.observe.logs import configure_logging, get_logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True, scope="module")
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in ("mcp", "httpx2"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_pipe_gets_one_json_object_a_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    get_logger("gateway.proxy").info("upstream is up", server="time", seconds=0.5, tools=["a", "b"])

    (line,) = lines(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert str(line["timestamp"]).endswith("Z")
    assert line["level"] == "info"
    assert line["logger"] == "gateway.proxy"
    assert line["event"] == "upstream is up"
    assert (line["server"], line["seconds"], line["tools"]) == ("time", 0.5, ["a", "b"])


def test_terminal_gets_a_line_for_people_and_json_can_be_forced() -> None:
    stream = Terminal()
    configure_logging(stream=stream)
    get_logger("x").warning("slow", server="time", note="a b")
    assert "slow" in stream.getvalue()
    assert "note" in stream.getvalue()
    assert "'a b'" in stream.getvalue()
    assert "\x1b[33mwarning" in stream.getvalue()

    forced = Terminal()
    configure_logging(stream=forced, json=True)
    get_logger("x").warning("slow")
    assert lines(forced)[0]["event"] == "slow"


def test_line_for_people_has_the_time_of_day_and_quotes_only_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    stream = io.StringIO()
    configure_logging(stream=stream, json=False)
    get_logger("x").info("up", server="time", note="a 'b'", empty="", many=[1, 2], none=None)

    clock, line = stream.getvalue().split(" ", 1)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", clock)
    assert line == "info    up  server=time  note='a \\'b\\''  empty=''  many='[1, 2]'  none=null\n"


def test_worker_says_its_number_in_every_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, worker=0)
    get_logger("x").info("one")
    configure_logging(stream=stream)
    get_logger("x").info("two")

    assert [line.get("worker") for line in lines(stream)] == [0, None]


def test_nested_values_are_shown_four_deep_and_fifty_wide() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    deep = {"a": {"b": {"c": {"d": {"e": 1}}}}}
    wide = {f"{number:03}": number for number in range(200)}
    get_logger("x").info("x", deep=deep, lists=[[[[[1]]]]], many=list(range(200)), wide=wide, key={"k" * 90: 1})

    (line,) = lines(stream)
    assert line["deep"] == {"a": {"b": {"c": {"d": "{'e': 1}"}}}}
    assert line["lists"] == [[[["[1]"]]]]
    assert line["many"] == list(range(50))
    assert line["wide"] == {f"{number:03}": number for number in range(50)}
    assert line["key"] == {"k" * 50 + "… (40 more characters)": 1}


def test_values_that_are_no_texts_stay_what_they_are_and_none_is_no_secret() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    get_logger("x").info("x", api_key=None, yes=True, half=0.5, one=1, nothing=None)

    (line,) = lines(stream)
    assert {name: line[name] for name in ("api_key", "yes", "half", "one", "nothing")} == {
        "api_key": None,
        "yes": True,
        "half": 0.5,
        "one": 1,
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("environ", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": "", "FORCE_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_the_conventions(
    environ: dict[str, str], terminal: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    configure_logging(stream=stream, json=False)
    get_logger("x").info("hello", a=1)

    assert ("\x1b[" in stream.getvalue()) == coloured


@given(event=st.text(), key=st.text(), value=st.text(), nested=st.dictionaries(st.text(), st.text(), max_size=2))
@pytest.mark.parametrize("as_json", [True, False])
def test_no_value_starts_a_second_line_or_moves_the_terminal(
    as_json: bool, event: str, key: str, value: str, nested: dict[str, str]
) -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, json=as_json)
    # Bound, since a key of any spelling can't be a keyword argument beside `event`.
    get_logger("x").bind(**{f"k{key}": value, "nested": nested}).info(event.replace("%", ""))

    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if as_json:
        assert lines(stream)[0]["event"] == event.replace("%", "")


def test_long_value_is_cut() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    get_logger("x").info("big", text="a" * 100_000, many=list(range(10_000)))

    assert len(stream.getvalue()) < 4000
    assert str(lines(stream)[0]["text"]).endswith("(98000 more characters)")


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_are_masked_by_name_by_shape_and_by_value(as_json: bool) -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, json=as_json, secrets={"hunter22"})
    log = get_logger("x")
    log.info("calls hunter22", authorization="Basic-9", api_key="k-9", headers={"X-Api-Key": "k-9", "ok": "hunter22!"})
    log.info("sent Bearer abcdefgh9 to https://me:pw-9@host/", env=["TOKEN=hunter22"], completion_tokens=7)

    text = stream.getvalue()
    assert not [secret for secret in ("hunter22", "Basic-9", "k-9", "abcdefgh9", "pw-9") if secret in text]
    assert "7" in text
    assert "https://****@host/" in text


def test_traceback_is_kept_whole_and_shows_no_secret() -> None:
    for as_json in (True, False):
        stream = io.StringIO()
        configure_logging(stream=stream, json=as_json, secrets={"hunter22"})
        try:
            raise ValueError("evil\x1b[31m hunter22")
        except ValueError:
            get_logger("x").exception("failed")

        text = stream.getvalue()
        assert "ValueError: evil" in text
        assert "Traceback" in text
        assert "\x1b" not in text
        assert "hunter22" not in text
        assert len(text.splitlines()) == 1 if as_json else len(text.splitlines()) > 3


def test_other_libraries_log_into_the_same_stream() -> None:
    handler = logging.StreamHandler(io.StringIO())
    logging.getLogger("uvicorn").addHandler(handler)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("uvicorn.error").info("started on %s", "127.0.0.1\n")
    logging.getLogger("mcp.server").info("processing request")
    logging.getLogger("mcp.server").warning("odd")

    assert [line["event"] for line in lines(stream)] == ["started on 127.0.0.1\n", "odd"]
    assert handler not in logging.getLogger("uvicorn").handlers


def test_second_call_replaces_the_stream_and_the_level() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging(stream=first, level="debug")
    get_logger("x").debug("one")
    logging.getLogger("mcp.server").info("heard")
    configure_logging(stream=second, level="warning")
    get_logger("x").info("two")
    get_logger("x").error("three")

    assert [line["event"] for line in lines(first)] == ["one", "heard"]
    assert [line["event"] for line in lines(second)] == ["three"]


def test_context_of_a_request_is_on_every_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    with structlog.contextvars.bound_contextvars(request="r-1"):
        get_logger("x").info("inside")
    get_logger("x").info("outside")

    assert [line.get("request") for line in lines(stream)] == ["r-1", None]


def test_default_is_standard_error_never_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    get_logger("x").info("hello")

    out, err = capsys.readouterr()
    assert out == ""
    assert "hello" in err


def test_logger_prints_nothing_on_standard_output_before_it_is_configured(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("never.configured").error("hello")

    assert capsys.readouterr().out == ""


def test_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'loud' is unknown: expected one of debug, info, warning, error"):
        configure_logging(level="loud")


def test_endless_traceback_keeps_its_end() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    try:
        raise ValueError("a" * 100_000 + "the end")
    except ValueError:
        get_logger("x").exception("failed")

    (line,) = lines(stream)
    assert len(str(line["exception"])) == 8000
    assert str(line["exception"]).endswith("the end")
