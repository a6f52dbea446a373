"""A bolt-on tool: a call in token ids to an answer in token ids, without a server.

The author writes one function from arguments to what the tool says: a text, or a fragment with its slots filled. The
answer is in ids of the map of the model that calls, one of those in the manifest. `arguments` and `answer` are the two
halves of a call, for callers that run the function themselves; `call` does both, and untrusted input to it gives an
error answer, never an exception.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from leaf_sdk.errors import CallInvalid, FragmentUnknown, ManifestInvalid

from .fragments import Fragments
from .manifest import Manifest
from .messages import CodecToolCall, CodecToolResult


@dataclass(frozen=True, slots=True)
class Filled:
    """A fragment with its slots filled; made with `fill`."""

    fragment: str
    slots: Mapping[str, str]


Output = str | Filled
"""What a tool says: a text, or a fragment."""


class ToolRefusal(Exception):
    """Raised by a tool's function that can't carry out a call. The message goes to the model, the code beside it."""

    def __init__(self, message: str, code: str = "E_BAD_ARG") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def fill(fragment: str, /, **slots: str) -> Filled:
    """Fill a fragment's slots with texts; a tool's function returns the result as what the tool says."""
    return Filled(fragment, slots)


class CodecTool:
    """A tool: its manifest, its function, and its fragments under each model's map."""

    def __init__(
        self,
        manifest: Manifest,
        function: Callable[[Mapping[str, Any]], Any],
        models: Mapping[str, Fragments],
    ) -> None:
        """Put a tool together.

        Args:
            manifest: what is published.
            function: takes the arguments; returns what the tool says: `str`, `Filled`, or an awaitable of either.
            models: the fragments by the manifest's model ids; models without any are answered in text.

        Raises:
            ManifestInvalid: fragments for a model that the manifest does not list.
        """
        self.manifest = manifest
        self.function = function
        self.models = dict(models)
        unlisted = [model for model in models if manifest.binding_for_model(model) is None]
        if unlisted:
            raise ManifestInvalid(
                f"tool {manifest.name!r:.60} has fragments for model {unlisted[0]!r:.80}, which its manifest does not "
                "list; add it under models",
                source=manifest.name,
            )
        self._by_hash = {
            binding.tokenizer_hash: models[binding.model_id]
            for binding in manifest.models
            if binding.model_id in models
        }

    def call(self, call: CodecToolCall) -> CodecToolResult:
        """Answer one call of a tool whose function is not async.

        Raises:
            Exception: anything that the function raises, except `ToolRefusal` and `CallInvalid`.
        """
        try:
            said = self.function(self.arguments(call))
        except (CallInvalid, ToolRefusal) as refusal:
            return CodecToolResult.failed(call.call_id, refusal.message, refusal.code)
        return self.answer(call, said)

    def arguments(self, call: CodecToolCall) -> dict[str, Any]:
        """Return a call's arguments.

        Raises:
            CallInvalid: the call is for another tool, or has ids of a tokenizer that the tool has none for, ids that
                are not ordinary text, something other than a JSON object, or not all required arguments.
        """
        if call.name != self.manifest.name:
            raise CallInvalid(f"no tool {call.name!r:.60} here, expected {self.manifest.name!r}", code="E_UNKNOWN_TOOL")
        if call.argument_ids is not None:
            written = _text_of(call.argument_ids, self._fragments(call))
        else:
            written = call.arguments_json or "{}"
        return self.checked(_object(written, self.manifest))

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments if none that the manifest requires is missing.

        Raises:
            CallInvalid: a required argument is missing.
        """
        required = cast("list[object]", self.manifest.arguments_schema.get("required") or [])
        missing = [name for name in required if isinstance(name, str) and name not in arguments]
        if missing:
            raise CallInvalid(f"argument {missing[0]!r:.60} is missing; give all of {required}", code="E_BAD_ARG")
        return dict(arguments)

    def answer(self, call: CodecToolCall, said: Output) -> CodecToolResult:
        """Return the answer to a call: what the tool says in ids of the call's map, or as text if the tool has none.

        The engines' dialect has no answer in text, so there it is an error. So are the tool's own mistakes: a fragment
        that does not exist, or a text with a lone surrogate.
        """
        fragments = self._found(call)
        try:
            if fragments is not None:
                return CodecToolResult.tokens(call.call_id, tuple(self.ids(said, fragments)))
            if call.dialect == "engine":
                return CodecToolResult.failed(call.call_id, _no_ids(call), "E_STALE")
            return CodecToolResult.said(call.call_id, _sendable(self.text(said)))
        except (FragmentUnknown, ValueError) as error:
            return CodecToolResult.failed(call.call_id, str(error), "E_INTERNAL")

    def ids(self, said: Output, fragments: Fragments) -> list[int]:
        """Return what the tool says as ids.

        Raises:
            FragmentUnknown: no such fragment, or values that do not fit its slots.
            TextNotUnicode: a text with a lone surrogate.
        """
        if isinstance(said, Filled):
            return fragments[said.fragment].ids(said.slots)
        return list(fragments.encode(said))

    def text(self, said: Output) -> str:
        """Return what the tool says as text.

        Raises:
            FragmentUnknown: no such fragment, values that do not fit its slots, or a tool without fragments.
        """
        if isinstance(said, str):
            return said
        for fragments in self.models.values():
            return fragments[said.fragment].text(said.slots)
        raise FragmentUnknown(f"tool {self.manifest.name!r:.60} has no fragments; precache them for a model first")

    def _found(self, call: CodecToolCall) -> Fragments | None:
        if call.tokenizer_hash is not None:
            return self._by_hash.get(call.tokenizer_hash.lower().removeprefix("sha256:"))
        return self.models.get(call.model_id or "")

    def _fragments(self, call: CodecToolCall) -> Fragments:
        found = self._found(call)
        if found is None:
            raise CallInvalid(_no_ids(call), code="E_STALE")
        return found


def _sendable(text: str) -> str:
    text.encode()  # raises a ValueError for a lone surrogate, which no message can hold
    return text


def _no_ids(call: CodecToolCall) -> str:
    asked = call.tokenizer_hash if call.dialect == "engine" else call.model_id
    return f"tool {call.name!r:.60} has no ids for {asked!r:.90}; build its caches for that model's map"


def _text_of(ids: tuple[int, ...], fragments: Fragments) -> str:
    token_map = fragments.token_map
    if token_map.special_ids.intersection(ids):
        raise CallInvalid("the argument ids include a special token; send those between the markers", code="E_BAD_ARG")
    if not all(map(token_map.has_id, ids)):
        raise CallInvalid(f"the argument ids include one that map {token_map.map_id!r} does not have", code="E_BAD_ARG")
    return token_map.decode(ids)


def _object(written: str, manifest: Manifest) -> dict[str, Any]:
    """Read the arguments, either alone or, as models write them, inside a call of this tool."""
    try:
        document: object = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise CallInvalid(f"the arguments are not JSON: {error}", code="E_BAD_ARG") from error
    if not isinstance(document, dict):
        raise CallInvalid(f"the arguments are a JSON {type(document).__name__}, expected an object", code="E_BAD_ARG")
    fields = cast("dict[str, Any]", document)
    inner: object = fields.get("arguments", fields.get("parameters"))
    if isinstance(inner, dict) and manifest.reads_as_call(fields.get("name")):
        return cast("dict[str, Any]", inner)
    return fields
