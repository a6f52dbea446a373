"""What must differ between two plays of one script, made equal: times, random ids, a folder's path.

Pure: JSON in, JSON out. Nothing else is touched, so that whatever the gateway would lose or add is seen.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

_RULES = (
    (re.compile(r"\d{1,2}:\d\d:\d\d[\s\u202f][AP]M"), "<time>"),
    (re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT[^\n\"]*"), "<date>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), "<uuid>"),
)


def masked(value: Any, folders: Sequence[str] = ()) -> Any:
    """Give the same JSON with times, random ids and these folders' paths replaced by their names in brackets."""
    if isinstance(value, str):
        return _mask_text(value, folders)
    if isinstance(value, list):
        return [masked(item, folders) for item in value]
    if isinstance(value, dict):
        return {key: _mask_blob(item) if key == "blob" else masked(item, folders) for key, item in value.items()}
    return value


def unmasked(value: Any, folder: str) -> Any:
    """Give the same JSON with `<folder>` replaced by a path."""
    if isinstance(value, str):
        return value.replace("<folder>", folder)
    if isinstance(value, list):
        return [unmasked(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: unmasked(item, folder) for key, item in value.items()}
    return value


def _mask_text(text: str, folders: Sequence[str]) -> str:
    for folder in folders:
        text = text.replace(folder, "<folder>")
    for pattern, name in _RULES:
        text = pattern.sub(name, text)
    return text


def _mask_blob(blob: Any) -> Any:
    """Some blobs are texts that hold a time."""
    try:
        text = base64.b64decode(blob, validate=True).decode()
    except (TypeError, ValueError, binascii.Error):
        return blob
    made = _mask_text(text, ())
    return blob if made == text else base64.b64encode(made.encode()).decode()
