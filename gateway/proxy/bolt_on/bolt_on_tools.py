"""The tools that manifests describe, each with the address that takes its calls, and what such calls say.

Turns a file, a folder or a URL into tools; a bad manifest is reported and does not affect the others. Nobody chooses
addresses for us: a manifest on this machine may name an address on this machine, a fetched one only an address on the
host that it came from, and either one a host that the operator listed. The configured credentials are sent only to the
configured endpoint.
"""

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, cast

import anyio
import anyio.to_thread

from gateway.config.address import Address, Origin, is_http_url, is_loopback, read_url
from gateway.config.gateway_config import UpstreamConfig
from gateway.config.programs import UNIX, is_listed
from gateway.http1.connection import Connection, header_lines
from gateway.observe.metrics import Metrics
from gateway.proxy.result_tokens import UnreadText
from gateway.proxy.results import WrittenIds, error_result
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.http_answers import common_headers, media_type, status_words
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, Unfit, too_long
from leaf_sdk.errors import CallInvalid, ManifestInvalid
from leaf_sdk.leaf.bolt_on import (
    CALL_PATH,
    CodecToolCall,
    CodecToolResult,
    Manifest,
    ModelBinding,
    load_manifest,
    load_manifests,
    parse_manifest,
)
from leaf_sdk.leaf.bolt_on.manifest import MAX_MANIFEST_BYTES
from leaf_sdk.leaf.bolt_on.messages import MEDIA_TYPE
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

# A request follows no redirect and accepts no compressed answer: both would let somebody else choose.

_REFUSAL: Final = 2048
"""Bytes that are read of the body of a refusal."""
_OURS: Final = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "host"})


def call_lines(address: Address, headers: dict[str, str]) -> bytes:
    """The header lines of every call to an address. `headers`: the configured ones; those that we set are skipped."""
    lines = {**common_headers(address), "accept": MEDIA_TYPE, "content-type": MEDIA_TYPE}
    return header_lines(lines | {name.lower(): text for name, text in headers.items() if name.lower() not in _OURS})


async def post(client: HttpClient, address: Address, lines: bytes, body: bytes, bound: int) -> bytes:
    """Post a call, and return the body of the answer.

    Raises:
        LinkLost: the server can't be reached, or the connection broke.
        NoAnswer: its status is not 200, its media type is another, or it is compressed.
        Unfit: it is longer than `bound` bytes.
    """
    return await _ask(client, address, "POST", lines, body, bound, MEDIA_TYPE)


async def get(client: HttpClient, address: Address, bound: int) -> bytes:
    """Fetch a URL, and return the body of the answer. Raises what `post` raises."""
    lines = header_lines({**common_headers(address), "accept": "application/json"})
    return await _ask(client, address, "GET", lines, b"", bound, None)


async def look(client: HttpClient, origin: Origin) -> None:
    """Check that something listens there. Raises LinkLost or NoAnswer if not."""
    client.give(await client.take(origin))


async def _ask(
    client: HttpClient, address: Address, method: str, lines: bytes, body: bytes, bound: int, kind: str | None
) -> bytes:
    connection = await client.take(address.origin)
    try:
        connection.send(method, address.path, lines, body)
        await connection.head()
        if connection.status != 200:
            raise NoAnswer(await _words_of_refusal(connection))
        if kind is not None and media_type(connection.header("content-type")) != kind:
            raise NoAnswer(f"its answer is of type {connection.header('content-type')[:80]!r}; expected {kind!r}")
        connection.decode()
        answer = await connection.read(bound)
    finally:
        # This closes a connection whose answer was not read to its end, be it because the caller was cancelled.
        client.give(connection)
    if answer is None:
        raise Unfit(too_long(bound))
    return answer


async def _words_of_refusal(connection: Connection) -> str:
    words = status_words(connection.status)
    said = await connection.read(_REFUSAL)
    return f"{words}: {said.decode('utf-8', 'replace').strip()}" if said else words


FETCH_TIME: Final = 10.0
"""Seconds to fetch a manifest from a URL."""
_NAME_BOUND: Final = 128


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, and the address that takes its calls."""

    manifest: Manifest
    address: Address
    ours: bool
    """Whether the address comes from the configuration: only then are our credentials sent there."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The usable tools, and one sentence on each manifest that is left out."""

    by_name: dict[str, Tool]
    faults: tuple[str, ...]


async def read_tools(config: UpstreamConfig, client: HttpClient) -> Tools:
    """Read the manifests of an upstream whose `manifest` is set. Raises `LinkLost`: none can be used; the message says
    what is wrong with the first."""
    place = config.manifest or ""
    if "://" in place:
        manifests, faults = await _fetched(place, client)
    else:
        manifests, faults = await anyio.to_thread.run_sync(_read, Path(place))
    tools = _placed(manifests, config, faults)
    if not tools.by_name:
        raise LinkLost(tools.faults[0] if tools.faults else f"{place!r} contains no manifest", sent=False)
    return tools


def _read(path: Path) -> tuple[list[Manifest], list[str]]:
    try:
        if path.is_dir():
            found, errors = load_manifests(path)
            return found, [error.message for error in errors]
        return [load_manifest(path)], []
    except ManifestInvalid as error:
        return [], [error.message]


async def _fetched(url: str, client: HttpClient) -> tuple[list[Manifest], list[str]]:
    try:
        with anyio.fail_after(FETCH_TIME):
            data = await get(client, read_url(url), MAX_MANIFEST_BYTES)
        return [parse_manifest(data, source=url)], []
    except TimeoutError:
        return [], [f"manifest {url!r} could not be fetched within {FETCH_TIME:g} s"]
    except (LinkLost, NoAnswer, ManifestInvalid) as error:
        return [], [f"manifest {url!r}: {error}"]


def _placed(manifests: Iterable[Manifest], config: UpstreamConfig, faults: list[str]) -> Tools:
    by_name: dict[str, Tool] = {}
    for manifest in manifests:
        try:
            tool = _tool(manifest, config)
        except ValueError as error:
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: {error}")
            continue
        if manifest.name in by_name or len(manifest.name) > _NAME_BOUND:
            why = "another manifest describes a tool of this name"
            if len(manifest.name) > _NAME_BOUND:
                why = f"its name has more than {_NAME_BOUND} characters"
            faults.append(f"tool {manifest.name[:_NAME_BOUND]!r} is left out: {why}")
            continue
        by_name[manifest.name] = tool
    return Tools(by_name, tuple(faults))


def _tool(manifest: Manifest, config: UpstreamConfig) -> Tool:
    """Raises ValueError if it names no endpoint, or one that it may not name."""
    if config.endpoint is not None:
        return Tool(manifest, _address(config.endpoint), ours=True)
    endpoint = manifest.endpoint
    if endpoint is None:
        raise ValueError("its manifest names no endpoint; set `endpoint`")
    if not _may_name(endpoint, config):
        raise ValueError(
            f"its manifest names the endpoint {endpoint[:200]!r}, which is not allowed: add its host to "
            "registry.allowed_hosts, or set `endpoint`"
        )
    return Tool(manifest, _address(endpoint), ours=False)


def _may_name(endpoint: str, config: UpstreamConfig) -> bool:
    place = config.manifest or ""
    is_url = is_http_url(endpoint)
    if is_url and is_listed(endpoint, config.manifest_hosts):
        return True
    if "://" in place:
        return is_url and read_url(endpoint).origin == read_url(place).origin
    return endpoint.startswith(f"{UNIX}/") or (is_url and is_loopback(read_url(endpoint).origin.host))


def _address(endpoint: str) -> Address:
    """Where calls are posted. A URL without a path gets the protocol's standard path."""
    if endpoint.startswith(UNIX):
        return Address(Origin(False, endpoint.removeprefix(UNIX), 0), CALL_PATH)
    address = read_url(endpoint)
    return address if address.path != "/" else Address(address.origin, CALL_PATH, address.authorization)


# A manifest may name a map by the hash of its bytes or of the tokenizer.json that it was built from: both are in use.
# The accepted maps are injected from above, since `proxy` and `engine` may not import each other.

_SHOWN: Final = 12
"""Hex digits of a hash that are shown to people."""


class KnownMaps(Protocol):
    """The accepted maps, by every hash that identifies one."""

    @property
    def by_hash(self) -> Mapping[str, TokenMap]:
        """Maps by hash (64 lower-case hex digits): that of their own bytes, and of the tokenizer.json behind them."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """Ids may be sent both ways."""

    binding: ModelBinding
    token_map: TokenMap


@dataclass(frozen=True, slots=True)
class MapMiss:
    """Ids may not be sent."""

    reason: str


@dataclass(frozen=True, slots=True)
class BoltOnStatus:
    """How one bolt-on is called, to be shown to people."""

    tool: str
    mode: str
    """`ids`, `text` or `refused`."""
    model: str | None
    """The model whose ids are used, as the manifest names it; None: it names none, or no ids are used."""
    endpoint: str
    reason: str | None
    """Why it is not called with ids."""


class NoMaps:
    """A `KnownMaps` for a gateway that accepts no map."""

    by_hash: Mapping[str, TokenMap] = MappingProxyType({})


class MatchedTools(Protocol):
    """The bolt-ons of one server, each called with ids or with text, as the accepted maps decide."""

    def maps_changed(self) -> None:
        """Take note that the accepted maps have changed."""
        ...

    def statuses(self) -> tuple[BoltOnStatus, ...]:
        """How each bolt-on is called."""
        ...


class HeldMaps:
    """The accepted maps, and the running bolt-ons that depend on them. One instance for the whole proxy."""

    def __init__(self, known: KnownMaps) -> None:
        self.known = known
        self._up: dict[object, tuple[str, MatchedTools]] = {}
        self._said: dict[tuple[str, str], str] = {}

    def changed(self) -> None:
        """Take note that the accepted maps have changed."""
        for _, tools in list(self._up.values()):
            tools.maps_changed()

    @contextmanager
    def informing(self, server: str, tools: MatchedTools) -> Generator[None]:
        """Tell `tools` about changes of the accepted maps while the context lasts."""
        key = object()
        self._up[key] = (server, tools)
        try:
            yield
        finally:
            del self._up[key]

    def is_new(self, server: str, tool: str, words: str) -> bool:
        """Whether `words` differ from the last ones about this tool: a server that restarts does not log them again."""
        before, self._said[server, tool] = self._said.get((server, tool)), words
        return words != before

    def statuses(self, server: str) -> tuple[BoltOnStatus, ...]:
        """How each bolt-on of a server is called; empty if the server has no bolt-ons or is not up."""
        # The last one: during a reload there may be two servers of one name.
        found = [tools for name, tools in self._up.values() if name == server]
        return found[-1].statuses() if found else ()


def match(manifest: Manifest, known: KnownMaps) -> Match | MapMiss:
    """Find the first model of the manifest whose tokenizer is accepted."""
    accepted = known.by_hash
    for binding in manifest.models:
        token_map = accepted.get(binding.tokenizer_hash)
        if token_map is not None:
            return Match(binding, token_map)
    has = ", ".join(f"{each.model_id or 'a model'} ({each.tokenizer_hash[:_SHOWN]}…)" for each in manifest.models[:5])
    if not accepted:
        return MapMiss(f"it has ids for {has}, and this gateway accepts no map")
    maps = sorted({each.map_id.removeprefix("sha256:")[:_SHOWN] for each in accepted.values()})
    return MapMiss(f"it has ids for {has}, and this gateway accepts only {', '.join(f'{each}…' for each in maps)}")


# Where the bolt-on's tokenizer is accepted, the ids that the model wrote are sent as they are, or the arguments are
# encoded under that map. Ids that come back are checked, and not decoded for callers that read ids. Elsewhere arguments
# and answer are text.

Form = Literal["raw", "encoded", "text"]
"""How the arguments are sent: as the model's ids, as ids that were made here, or as text."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A call, ready to be sent."""

    call: CodecToolCall
    form: Form
    token_map: TokenMap | None
    """The map that the answer's ids belong to; None: the answer may contain no ids."""
    reads_ids: bool


def write_call(
    manifest: Manifest,
    verdict: Match | MapMiss,
    params: Mapping[str, Any],
    written: WrittenIds | None,
    number: int,
    metrics: Metrics,
) -> Outgoing:
    """Return the call that the `params` of a `tools/call` ask for. Raises `Unfit`: the arguments can't be written as
    JSON, or the tool speaks the engines' dialect, which has no text, and none of its models fits an accepted map."""
    reads_ids = written is not None
    text = _written(params.get("arguments") or {})
    if isinstance(verdict, MapMiss):
        if not manifest.models[0].model_id:
            raise Unfit(f"the call was not sent: the tool answers only with ids, but {verdict.reason}")
        call = CodecToolCall(manifest.name, number, model_id="", arguments_json=text)
        return Outgoing(call, "text", None, reads_ids=False)
    binding, token_map = verdict.binding, verdict.token_map
    if not binding.model_id:
        call = CodecToolCall(
            manifest.name,
            number,
            arguments_json=text,
            tokenizer_hash=binding.tokenizer_hash,
            dialect="engine",
        )
        return Outgoing(call, "text", token_map, reads_ids)
    ids, form = _ids_for(manifest, written), cast("Form", "raw")
    if ids is None:
        began = perf_counter()
        ids, form = tuple(token_map.encode(text)), "encoded"
        metrics.shim_tokenized(token_map.map_id, ids=len(ids), seconds=perf_counter() - began)
    call = CodecToolCall(manifest.name, number, argument_ids=ids, model_id=binding.model_id)
    return Outgoing(call, form, token_map, reads_ids)


def read_answer(outgoing: Outgoing, body: bytes, metrics: Metrics) -> dict[str, Any]:
    """Return the answer as a CallToolResult.

    Raises:
        NoAnswer: it is not an answer to this call.
        Unfit: its ids may not be used.
    """
    try:
        answer = CodecToolResult.from_bytes(body)
    except CallInvalid as error:
        raise NoAnswer(f"its answer can't be read: {error.message}") from None
    if answer.call_id != outgoing.call.call_id:
        raise NoAnswer(f"its answer is for call {str(answer.call_id)[:40]!r}, expected {outgoing.call.call_id!r}")
    match answer.kind:
        case "tokens":
            return {"content": [_token_block(outgoing, answer.response_ids, metrics)]}
        case "text":
            return {"content": [{"type": "text", "text": answer.text}]}
        case "error":
            return error_result(answer.message if answer.code is None else f"{answer.message} ({answer.code})")


def _token_block(outgoing: Outgoing, ids: tuple[int, ...], metrics: Metrics) -> dict[str, Any] | UnreadText:
    token_map = outgoing.token_map
    if token_map is None:
        metrics.leaf_rejected("map")
        raise Unfit("it answered with ids, which belong to no map that this gateway accepts; expected text")
    if (rejection := check_ids(token_map, "", ids, "trust")) is not None:
        metrics.leaf_rejected(rejection.reason)
        raise Unfit(f"the ids in its answer are refused: {rejection.detail}")
    unread = UnreadText(token_map, ids, metrics.shim_detokenized)
    if outgoing.reads_ids:
        return unread
    return {"type": "text", "text": unread.text, "_meta": {CODEC_META_KEY: {"map_id": token_map.map_id, "ids": [*ids]}}}


def _ids_for(manifest: Manifest, written: WrittenIds | None) -> tuple[int, ...] | None:
    """The model's own ids if the tool can tell what they spell, else None."""
    if written is None:
        return None
    # The ids of a whole call include the tool's name as the model knows it; not every tool can tell it from arguments.
    return written.ids if written.name is None or manifest.reads_as_call(written.name) else None


def _written(arguments: object) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Unfit(f"the call was not sent: its arguments can't be written as JSON ({error})") from None
    return text
