"""A frame's fields as an object of msgpack (or JSON), and back, with every type checked.

Unknown keys are skipped, a known key of another type is an error. Source: Codec v0.5; keys that start with `x_` are
ours and are described in `codec.proto`.
"""

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from .frame import NO_EXTRAS, Extras, Frame, Limits, Spliced, ToolCall, Usage

Fields = Mapping[str, Any]


class FieldInvalid(ValueError):
    """A field is missing or of another type. Readers turn this into an error with an offset."""


class FieldTooLarge(FieldInvalid):
    """A field is over a limit."""


def write_fields(frame: Frame, ids: dict[str, Any]) -> dict[str, Any]:
    """Return a frame's object: `ids` as the encoding spells them, then the rest in the order of the reference."""
    fields = {**ids, "done": frame.done}
    if frame.finish_reason is not None:
        fields["finish_reason"] = frame.finish_reason
    if frame.tool_calls:
        fields["tool_calls"] = [_write_call(call) for call in frame.tool_calls]
    if frame.extras is not NO_EXTRAS:
        fields |= _write_extras(frame.extras)
    return fields


def _write_call(call: ToolCall) -> dict[str, str]:
    fields = {"arguments_json": call.arguments_json, "name": call.name, "id": call.id}
    return {key: value for key, value in fields.items() if value is not None}


def _write_extras(extras: Extras) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if extras.region_ids:
        fields["x_region_ids"] = extras.region_ids
    if extras.spliced:
        fields["x_spliced"] = [_write_spliced(part) for part in extras.spliced]
    if extras.usage is not None:
        fields["x_usage"] = _write_usage(extras.usage)
    if extras.error is not None:
        fields["x_error"] = extras.error
    if extras.seq is not None:
        fields["x_seq"] = extras.seq
    if extras.prompt_ids:
        fields["x_prompt_ids"] = extras.prompt_ids
    return fields


def _write_spliced(part: Spliced) -> dict[str, Any]:
    fields: dict[str, Any] = {"ids": part.ids, "source": part.source}
    return fields if part.call_id is None else {**fields, "call_id": part.call_id}


def _write_usage(usage: Usage) -> dict[str, int]:
    fields = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return fields if usage.cached_tokens is None else {**fields, "cached_tokens": usage.cached_tokens}


def read_frame(fields: Fields, ids: tuple[int, ...], limits: Limits) -> Frame:
    """Make a frame from its object, whose ids have already been read.

    Raises:
        FieldInvalid: a field is missing or of another type; the message names it.
    """
    done = fields.get("done")
    if done.__class__ is not bool:
        refuse("done", done, "true or false")
    if len(fields) == 2:
        return Frame(ids, cast("bool", done))
    calls = tuple(_read_call(call) for call in _maps(fields, "tool_calls", limits))
    return Frame(ids, cast("bool", done), _text_or_none(fields, "finish_reason"), calls, _read_extras(fields, limits))


def read_ids(value: object, key: str, limits: Limits) -> tuple[int, ...]:
    """Check a list of ids.

    Raises:
        FieldInvalid: not a list, or something in it is not an id.
        FieldTooLarge: the list is too long, or an id too large.
    """
    if not isinstance(value, list):
        refuse(key, value, "a list of ids")
    ids = cast("list[int]", value)
    if len(ids) == 1 and ids[0].__class__ is int and 0 <= ids[0] <= limits.largest_id:
        return (ids[0],)
    if not ids:
        return ()
    if len(ids) > limits.ids:
        raise FieldTooLarge(f"{key} holds {len(ids)} ids, expected at most {limits.ids}")
    if set(map(type, ids)) != {int} or min(ids) < 0:
        refuse(key, ids, "whole numbers that are not negative")
    if max(ids) > limits.largest_id:
        raise FieldTooLarge(f"{key} holds id {max(ids)!r}, expected at most {limits.largest_id}")
    return tuple(ids)


def _read_call(fields: Fields) -> ToolCall:
    return ToolCall(_text(fields, "arguments_json"), _text_or_none(fields, "name"), _text_or_none(fields, "id"))


def _read_extras(fields: Fields, limits: Limits) -> Extras:
    if not any(key.__class__ is str and key.startswith("x_") for key in fields):
        return NO_EXTRAS
    usage = fields.get("x_usage")
    return Extras(
        region_ids=read_ids(fields.get("x_region_ids", []), "x_region_ids", limits),
        spliced=tuple(_read_spliced(part, limits) for part in _maps(fields, "x_spliced", limits)),
        usage=None if usage is None else _read_usage(usage),
        error=_text_or_none(fields, "x_error"),
        seq=_count_or_none(fields, "x_seq"),
        prompt_ids=read_ids(fields.get("x_prompt_ids", []), "x_prompt_ids", limits),
    )


def _read_spliced(fields: Fields, limits: Limits) -> Spliced:
    return Spliced(
        read_ids(fields.get("ids"), "ids", limits), _text(fields, "source"), _text_or_none(fields, "call_id")
    )


def _read_usage(value: object) -> Usage:
    if not isinstance(value, dict):
        refuse("x_usage", value, "a map")
    fields = cast("Fields", value)
    prompt, completion = _count_or_none(fields, "prompt_tokens"), _count_or_none(fields, "completion_tokens")
    if prompt is None or completion is None:
        refuse("x_usage", fields, "prompt_tokens and completion_tokens")
    return Usage(prompt, completion, _count_or_none(fields, "cached_tokens"))


def _maps(fields: Fields, key: str, limits: Limits) -> list[Fields]:
    value: object = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        refuse(key, value, "a list of maps")
    parts = cast("list[Fields]", value)
    if len(parts) > limits.parts:
        raise FieldTooLarge(f"{key} holds {len(parts)} maps, expected at most {limits.parts}")
    if set(map(type, parts)) - {dict}:
        refuse(key, parts, "a list of maps")
    return parts


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        refuse(key, value, "a string")
    return value


def _text_or_none(fields: Fields, key: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key)


def _count_or_none(fields: Fields, key: str) -> int | None:
    value = fields.get(key)
    if value is not None and (value.__class__ is not int or value < 0):
        refuse(key, value, "a whole number that is not negative")
    return cast("int | None", value)


def refuse(key: str, value: object, expected: str) -> NoReturn:
    """Refuse a field by name."""
    raise FieldInvalid(f"{key} is {value!r:.60}, expected {expected}")
