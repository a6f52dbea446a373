"""A running bolt-on to verdicts: its manifest, its answers in ids, and how it handles wrong calls.

It is asked over HTTP or a unix socket with msgpack, in both dialects. A tool is called if it requires no arguments or
if the author gave them; never with invented ones. Answers must be the ids of their own text. Needs an HTTP client
(extra `mcp`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, cast

import httpx2

from leaf_sdk.errors import CallInvalid, CodecError, ManifestInvalid
from leaf_sdk.leaf import check_ids
from leaf_sdk.leaf.bolt_on import CALL_PATH, CodecToolCall, CodecToolResult, Manifest, parse_manifest
from leaf_sdk.leaf.bolt_on.messages import MANIFEST_PATH, MAX_CALL_BYTES, MEDIA_TYPE
from leaf_sdk.leaf.bolt_on.source import ModelMap

from .manifest import judge_manifest
from .verdict import Report, Verdict, verdict_of

UNIX: Final = "unix:"
_NOBODY = "codec-leaf-check"


def check_bolt_on(
    target: str,
    models: Sequence[ModelMap],
    calls: Mapping[str, Mapping[str, Any]],
    *,
    token: str | None = None,
    timeout: float = 30.0,
) -> Report:
    """Check the tools of one server.

    Args:
        target: `http(s)://host:port`, with or without the call's path, or `unix:PATH`.
        models: the maps that answers can be judged under, each by the model's id.
        calls: arguments by tool name.
        token: the server's bearer token.
        timeout: seconds for each answer.
    """
    path = target.removeprefix(UNIX) if target.startswith(UNIX) else None
    base = "http://localhost" if path is not None else target.removesuffix(CALL_PATH).rstrip("/")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if path is not None and not Path(path).is_socket():
        return _unreachable(f"no socket at {path!r:.120}")
    transport = httpx2.HTTPTransport(uds=path)
    try:
        with httpx2.Client(transport=transport, base_url=base, headers=headers, timeout=timeout) as client:
            return Report("bolt-on", tuple(_Checks(client, models, calls).run()))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return _unreachable(f"{type(error).__name__}: {str(error)!r:.120}")


def _unreachable(why: str) -> Report:
    return Report("unreachable", (Verdict("answers", "fail", f"the server can't be reached: {why}"),))


@dataclass(frozen=True, slots=True)
class _Checks:
    client: httpx2.Client
    models: Sequence[ModelMap]
    calls: Mapping[str, Mapping[str, Any]]

    def run(self) -> list[Verdict]:
        verdicts = self._server()
        names = [*self.calls, *(name for name in self._names() if name not in self.calls)]
        if not names:
            verdicts.append(
                Verdict("manifest can be read", "skip", "the server lists no tools; name one with --call TOOL='{...}'")
            )
        for name in names:
            manifest, read = self._manifest(name)
            verdicts += read
            verdicts += self._tool(name, manifest)
        return verdicts

    def _server(self) -> list[Verdict]:
        """Send what needs no tool, such as a call of an unknown one: none of it may be answered with a result."""
        rule = "errors are well-formed"
        faults: list[str] = []
        unknown = self._asked(CodecToolCall(_NOBODY, 1, argument_ids=(), model_id=_NOBODY))
        if not isinstance(unknown, CodecToolResult) or unknown.kind != "error":
            faults.append(f"a call of an unknown tool is answered with {_told(unknown)}, expected an error answer")
        garbage = self._posted(b"\xc1 no msgpack", MEDIA_TYPE)
        if not 400 <= garbage.status_code < 500:
            faults.append(f"a body that is not msgpack is answered with HTTP {garbage.status_code}, expected 4xx")
        verdicts = [verdict_of(rule, faults, "an unknown tool, and a body that is not msgpack")]
        body = CodecToolCall(_NOBODY, 1, argument_ids=(), model_id=_NOBODY).to_bytes()
        taken = self._posted(body, "text/plain").status_code
        faults = (
            [f"a text/plain body is answered with HTTP {taken}, expected 415: any web page can make a browser send one"]
            if taken < 400
            else []
        )
        return [*verdicts, verdict_of("other media types are refused", faults, f"HTTP {taken}", outcome="warn")]

    def _names(self) -> list[str]:
        answer = self.client.get(MANIFEST_PATH)
        if answer.status_code != 200:
            return []
        try:
            listed: object = json.loads(answer.content[:MAX_CALL_BYTES]).get("tools")
        except (ValueError, AttributeError, RecursionError):
            return []
        return (
            [name for name in cast("list[object]", listed) if isinstance(name, str)] if isinstance(listed, list) else []
        )

    def _manifest(self, name: str) -> tuple[Manifest | None, list[Verdict]]:
        answer = self.client.get(f"{MANIFEST_PATH}{name}")
        if answer.status_code != 200:
            detail = f"the server does not publish it: HTTP {answer.status_code}"
            return None, [Verdict("manifest can be read", "skip", detail, name)]
        try:
            manifest = parse_manifest(answer.content)
        except ManifestInvalid as error:
            return None, [Verdict("manifest can be read", "fail", error.message, name)]
        return manifest, judge_manifest(manifest, ())

    def _tool(self, name: str, manifest: Manifest | None) -> list[Verdict]:
        arguments = self.calls.get(name)
        required: object = (manifest.arguments_schema.get("required") or []) if manifest else []
        if arguments is None and (required or manifest is None):
            why = f"it requires {required!r:.60}" if manifest else "its arguments are not known"
            return [Verdict("is called", "skip", f"{why}; give --call TOOL='{{...}}'", name)]
        judged = [(model, _model_id(model, manifest)) for model in self.models]
        known = [(model, model_id) for model, model_id in judged if model_id is not None]
        if not known:
            return [Verdict("is called", "skip", "give --map for one of its models, as MODEL=SOURCE", name)]
        return [each for model, model_id in known for each in self._model(name, model, model_id, arguments or {})]

    def _model(self, name: str, model: ModelMap, model_id: str, arguments: Mapping[str, Any]) -> list[Verdict]:
        token_map, where = model.token_map, f"{name} for {model_id:.60}"
        written = json.dumps(arguments, ensure_ascii=False)
        call = CodecToolCall(name, 1, argument_ids=tuple(token_map.encode(written)), model_id=model_id)
        started = perf_counter()
        answer = self._asked(call)
        took = f"{(perf_counter() - started) * 1000:.1f} ms"
        if not isinstance(answer, CodecToolResult) or answer.kind != "tokens":
            return [Verdict("answers in ids", "fail", f"{_told(answer)}, expected ids", where)]
        verdicts = [Verdict("answers in ids", "pass", f"{len(answer.response_ids)} ids, in {took}", where)]
        verdicts += _judged(answer, model, where)
        engine = self._asked(_engine_call(name, written, model.tokenizer_hash))
        same = isinstance(engine, CodecToolResult) and engine.kind == "tokens"
        faults = [] if same else [f"{_told(engine)}, expected ids"]
        verdicts.append(verdict_of("the engines' dialect is answered", faults, "ids", where, outcome="warn"))
        return [*verdicts, self._refusals(call, model, where)]

    def _refusals(self, call: CodecToolCall, model: ModelMap, where: str) -> Verdict:
        """Send wrong calls of this tool: with a control token, something other than JSON, an unknown tokenizer."""
        ids = call.argument_ids or ()
        wrong = {
            "arguments that are not JSON": CodecToolCall(
                call.name, 2, argument_ids=tuple(model.token_map.encode("no json")), model_id=call.model_id
            ),
            "an unknown tokenizer": _engine_call(call.name, "{}", "0" * 64),
        }
        for special in sorted(model.token_map.special_ids)[:1]:
            wrong["a control token in the arguments"] = CodecToolCall(
                call.name, 3, argument_ids=(special, *ids), model_id=call.model_id
            )
        faults: list[str] = []
        for what, each in wrong.items():
            answer = self._asked(each)
            if not isinstance(answer, CodecToolResult) or answer.kind != "error":
                faults.append(f"{what}: {_told(answer)}, expected an error answer")
        return verdict_of("wrong calls are refused", faults, ", ".join(wrong), where)

    def _asked(self, call: CodecToolCall) -> CodecToolResult | str:
        """Return the answer, or a description of what came instead."""
        answer = self._posted(call.to_bytes(), MEDIA_TYPE)
        if answer.status_code != 200:
            return f"HTTP {answer.status_code}: {answer.text!r:.80}"
        try:
            result = CodecToolResult.from_bytes(answer.content)
        except CallInvalid as error:
            return error.message
        return result if result.call_id == call.call_id else f"an answer to call {result.call_id!r:.40}"

    def _posted(self, body: bytes, media_type: str) -> httpx2.Response:
        return self.client.post(CALL_PATH, content=body, headers={"content-type": media_type})


def _judged(answer: CodecToolResult, model: ModelMap, where: str) -> list[Verdict]:
    token_map, ids = model.token_map, list(answer.response_ids)
    rejection = check_ids(token_map, "", ids, "trust")
    rule = "no control tokens in ids" if rejection and rejection.reason == "special" else "ids are ids of the map"
    if rejection is not None:
        return [Verdict(rule, "fail", rejection.detail, where)]
    text = token_map.decode(ids)
    verdicts = [Verdict("no control tokens in ids", "pass", f"{len(ids)} ids: {text!r:.60}", where)]
    if not token_map.exact_decode:
        return [
            *verdicts,
            Verdict("ids are those that the map gives", "skip", "this map does not decode exactly", where),
        ]
    try:
        expected = token_map.encode(text)
    except CodecError as error:
        return [*verdicts, Verdict("ids are those that the map gives", "fail", error.message, where)]
    place = next(
        (at for at, pair in enumerate(zip(ids, expected, strict=False)) if pair[0] != pair[1]),
        min(len(ids), len(expected)),
    )
    faults = [] if ids == expected else [f"the ids of {text!r:.60} differ from the map's at index {place}"]
    return [
        *verdicts,
        verdict_of("ids are those that the map gives", faults, "what the map encodes their text to", where),
    ]


def _engine_call(name: str, written: str, tokenizer_hash: str) -> CodecToolCall:
    return CodecToolCall(name, 4, arguments_json=written, tokenizer_hash=tokenizer_hash, dialect="engine")


def _model_id(model: ModelMap, manifest: Manifest | None) -> str | None:
    if manifest is None:
        return model.model_id
    binding = manifest.binding_for_hashes((model.tokenizer_hash, model.token_map.map_id))
    return binding.model_id if binding else None


def _told(answer: CodecToolResult | str) -> str:
    if isinstance(answer, str):
        return answer
    match answer.kind:
        case "tokens":
            return f"{len(answer.response_ids)} ids"
        case "text":
            return f"the text {answer.text!r:.60}"
        case "error":
            return f"the error {answer.code!r:.20}: {answer.message!r:.80}"
