"""Logs: one stream, one line for each event, for people on a terminal and as JSON everywhere else.

Turns what structlog and the standard library's logging report (ours, uvicorn's, mcp's) into lines on standard error,
never standard output, which belongs to the protocol in stdio mode. Values are untrusted: they are escaped and cut, and
names and shapes that carry secrets are masked, before anything is written. Every package above may log through it.
"""

import json as jsonlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from gateway.errors import ConfigError
from gateway.escape import MASK, cut_text, escape_text, mask_text, sounds_secret

LEVELS: Final = ("debug", "info", "warning", "error")
_TRACEBACK_CUT = 8000
_DEPTH = 4
_WIDTH = 50
_STYLES: Mapping[str, str] = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}
_FOREIGN = ("uvicorn", "uvicorn.error", "uvicorn.access", "mcp")
_CHATTY = ("mcp", "httpx2")
"""Libraries that report every request at `info`; the gateway reports what matters itself."""

_BEFORE: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger with this name; keyword arguments become fields. Silent below warnings until `configure_logging`."""
    # Wrapped by hand: structlog's own default prints to standard output, which in stdio mode belongs to the protocol.
    processors = [
        structlog.stdlib.filter_by_level,
        *_BEFORE,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    wrapper = structlog.make_filtering_bound_logger(logging.NOTSET)
    logger = structlog.wrap_logger(logging.getLogger(name), processors=processors, wrapper_class=wrapper)
    return cast("FilteringBoundLogger", logger)


def configure_logging(
    *,
    level: str = "info",
    json: bool | None = None,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    worker: int | None = None,
) -> None:
    """Send every log line of the process to one stream; calling it again replaces the stream.

    Args:
        level: one of LEVELS.
        json: whether each line is a JSON object. None: if the stream is not a terminal.
        stream: None: standard error, as it is at the time of the call.
        secrets: values that must not appear in any line, wherever they come from.
        worker: number of this process among several that write to the same stream; it is in every line.

    Raises:
        ConfigError: the level is none of LEVELS.
    """
    if level not in LEVELS:
        raise ConfigError(f"log level {level!r} is unknown: expected one of {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    as_json = not target.isatty() if json is None else json
    handler = _OurHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_BEFORE),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                *([] if worker is None else [_of_worker(worker)]),
                _clean(frozenset(secrets)),
                _render_json if as_json else _console(colour=_wants_colour(target)),
            ],
        )
    )
    _install(handler, level)


class _OurHandler(logging.StreamHandler[TextIO]):
    """The gateway's handler. A second call of `configure_logging` recognises the first one's by this type."""


def _install(handler: _OurHandler, level: str) -> None:
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _OurHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _FOREIGN:
        foreign = logging.getLogger(name)
        foreign.handlers.clear()
        foreign.propagate = True
        foreign.setLevel(logging.NOTSET)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


def _wants_colour(stream: TextIO) -> bool:
    """Whether to use colours: by NO_COLOR (which wins) and FORCE_COLOR, if set and not empty, else on a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _of_worker(number: int) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**event, "worker": number}

    return add


def _clean(secrets: frozenset[str]) -> Processor:
    def clean(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: _clean_value(key, event[key], secrets) for key in event}

    return clean


def _clean_value(key: str, value: object, secrets: frozenset[str], depth: int = 0) -> Any:
    if sounds_secret(key) and value is not None:
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _DEPTH and isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())[:_WIDTH]
        return {cut_text(str(k), _WIDTH): _clean_value(str(k), v, secrets, depth + 1) for k, v in pairs}
    if depth < _DEPTH and isinstance(value, list | tuple):
        items = list(cast("Iterable[object]", value))[:_WIDTH]
        return [_clean_value("", item, secrets, depth + 1) for item in items]
    text = mask_text(value if isinstance(value, str) else repr(value), secrets)
    return text[-_TRACEBACK_CUT:] if key == "exception" else cut_text(text)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    # `json` escapes control characters and everything beyond ASCII by itself.
    ordered = {key: event.pop(key) for key in ("timestamp", "level", "logger", "event") if key in event}
    return jsonlib.dumps({**ordered, **event})


def _console(*, colour: bool) -> Callable[[WrappedLogger, str, EventDict], str]:
    def paint(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if colour else text

    def render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        clock = str(event.pop("timestamp", ""))[11:19]
        level = str(event.pop("level", "info"))
        event.pop("logger", None)
        trace = str(event.pop("exception", "")).splitlines()
        head = f"{clock} {paint(f'{level:<7}', _STYLES.get(level, '0'))} {escape_text(str(event.pop('event', '')))}"
        fields = "".join(f"  {paint(f'{escape_text(key, _WIDTH)}=', '36')}{_show(event[key])}" for key in event)
        return head + fields + "".join(f"\n    {escape_text(line)}" for line in trace)

    return render


def _show(value: object) -> str:
    text = escape_text(value if isinstance(value, str) else jsonlib.dumps(value))
    return "'" + text.replace("'", "\\'") + "'" if not text or any(c in text for c in " ='") else text


# Log lines that tell a person, once, whether a tool ships token ids; and how its last result got its ids.
#
# Turns "this tool's block came with ids" and "this tool's block had to be tokenized" into one log line for each tool
# and map, however many calls follow; the metrics count the calls. What has been said is remembered up to a bound,
# beyond which nothing more is said, because tool names come from upstreams. It knows nothing of results or ids.

ShippedKind = Literal["leaf", "shim", "rejected"]
REMEMBERED: Final = 4096
_NAME_LENGTH = 128


class TokenNotices:
    """Says each thing once for every (kind, tool, map)."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        """`log` is where the lines go."""
        self._log = log
        self._said: set[tuple[str, str, str]] = set()
        self._last: dict[str, ShippedKind] = {}
        self._counts: dict[str, Counter[ShippedKind]] = {}

    def counts(self, tool: str) -> Mapping[ShippedKind, int]:
        """How many of the tool's blocks with text got their ids in each way."""
        return self._counts.get(tool[:_NAME_LENGTH]) or Counter[ShippedKind]()

    def last(self, tool: str) -> ShippedKind | None:
        """How the tool's last block with text got its ids; None: no block has needed ids yet."""
        return self._last.get(tool[:_NAME_LENGTH])

    def leaf(self, tool: str, map_id: str) -> None:
        """The tool's ids were good: nothing was tokenized here."""
        if self._is_new("leaf", tool, map_id):
            self._log.info(
                "the results of this tool come with token ids; the gateway checks and uses them",
                tool=tool,
                map=_short(map_id),
            )

    def shim(self, tool: str, map_id: str) -> None:
        """The tool sent text only: the gateway tokenizes for it."""
        if self._is_new("shim", tool, map_id):
            self._log.info(
                "the gateway tokenizes the results of this tool; a server with codec-leaf sends their token ids",
                tool=tool,
                map=_short(map_id),
            )

    def rejected(self, tool: str, map_id: str, reason: str, detail: str) -> None:
        """The tool sent ids that failed the checks: they were replaced by ids made from its text."""
        if self._is_new("rejected", tool, map_id):
            self._log.warning(
                "the token ids of this tool's result are refused; the gateway tokenizes its text instead",
                tool=tool,
                map=_short(map_id),
                reason=reason,
                detail=detail,
            )

    def _is_new(self, kind: ShippedKind, tool: str, map_id: str) -> bool:
        name = tool[:_NAME_LENGTH]
        if (counts := self._counts.get(name)) is not None:
            counts[kind] += 1
        # After the first call there is nothing more to say, and every call comes here.
        if self._last.get(tool) == kind and (kind, tool, map_id) in self._said:
            return False
        if name in self._last or len(self._last) < REMEMBERED:
            self._last[name] = kind
            if counts is None:
                self._counts[name] = Counter((kind,))
        key = (kind, name, map_id[:_NAME_LENGTH])
        if key in self._said or len(self._said) >= REMEMBERED:
            return False
        self._said.add(key)
        return True


def _short(map_id: str) -> str:
    return map_id.removeprefix("sha256:")[:12]
