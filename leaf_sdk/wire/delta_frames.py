"""Frames whose ids are differences: msgpack maps with `base_id` and `ids_delta`, under the name "msgpack-delta".

The first id is written as its difference from `base_id`, which every frame carries (the last id before the frame, 0 at
first), each later one as its difference from the one before; differences are zigzagged so that small ones are short.
Nothing else differs from `msgpack_frames`. No engine sends them. Source: Codec v0.5.
"""

from collections.abc import Sequence
from dataclasses import replace

from .fields import FieldInvalid, Fields, FieldTooLarge, read_frame, read_ids, refuse, write_fields
from .frame import MAX_ID, Frame, Limits
from .msgpack_frames import pack


class DeltaWriter:
    """Writes the frames of one stream; the base of a frame is the last id before it."""

    def __init__(self) -> None:
        self._base = 0

    def write(self, frame: Frame) -> bytes:
        """Return a frame's bytes.

        Raises:
            ValueError: an id that is negative or over 2**32 - 1.
        """
        ids = frame.ids
        if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
            raise ValueError(f"ids range from {min(ids)!r} to {max(ids)!r}, expected 0 to {MAX_ID}")
        fields = write_fields(frame, {"base_id": self._base, "ids_delta": differences(self._base, ids)})
        fields.setdefault("finish_reason", None)  # the reference writes it even if there is none
        self._base = ids[-1] if ids else self._base
        return pack(fields)


def differences(base: int, ids: Sequence[int]) -> list[int]:
    """Return each id as its zigzagged difference from the one before it; the first from `base`."""
    deltas: list[int] = []
    for token in ids:
        step = token - base
        deltas.append(step * 2 if step >= 0 else -step * 2 - 1)
        base = token
    return deltas


def sums(base: int, deltas: Sequence[int]) -> list[int]:
    """Undo `differences`."""
    ids: list[int] = []
    for delta in deltas:
        base += delta >> 1 if delta & 1 == 0 else -(delta + 1 >> 1)
        ids.append(base)
    return ids


def read_delta(fields: Fields, limits: Limits) -> Frame:
    """Make a frame from one map.

    Raises:
        FieldInvalid: a field is missing or of another type, or the differences lead below 0 or over 2**32 - 1.
    """
    base: object = fields.get("base_id")
    if not isinstance(base, int) or isinstance(base, bool) or not 0 <= base <= limits.largest_id:
        refuse("base_id", base, f"an id from 0 to {limits.largest_id}")
    # A difference needs one bit more than an id.
    deltas = read_ids(fields.get("ids_delta"), "ids_delta", replace(limits, largest_id=2 * MAX_ID + 1))
    ids = sums(base, deltas)
    if ids and max(ids) > limits.largest_id:
        raise FieldTooLarge(f"ids_delta leads to id {max(ids)!r}, expected at most {limits.largest_id}")
    if ids and min(ids) < 0:
        raise FieldInvalid(f"ids_delta leads to {min(ids)!r}, expected ids of at least 0")
    return read_frame(fields, tuple(ids), limits)
