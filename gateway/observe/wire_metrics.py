"""The metrics of streams of frames: how many, in which form, and how many bytes.

Labels are words from fixed lists: formats, codings and the reasons for choosing a coding.
"""

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import Counter

from gateway.observe.labels import OTHER, one_of
from leaf_sdk.wire import CODINGS, Format, Reason

FORMATS: Final = (*get_args(Format), OTHER)
_CODINGS: Final = (*CODINGS, OTHER)
_REASONS: Final = (*Reason, OTHER)


class WireMetrics:
    """What is counted about streams."""

    def __init__(self, counter: Callable[..., Counter]) -> None:
        self._streams = counter(
            "codec_wire_streams",
            "Streams of frames, by format, coding and the reason for the coding.",
            "format",
            "coding",
            "reason",
        )
        self._sent = counter(
            "codec_wire_sent_bytes", "Bytes of the bodies of these streams, as sent.", "format", "coding"
        )
        self._plain = counter("codec_wire_plain_bytes", "Bytes of these bodies before compression.", "format", "coding")
        self._ids = counter("codec_wire_ids", "Generated ids in these streams.", "format", "coding")
        self._json = counter(
            "codec_wire_json_bytes",
            "Bytes that the same answers would have taken as events of JSON, at least.",
            "format",
            "coding",
        )

    def stream(self, form: str, coding: str, reason: str, *, sent: int, plain: int, ids: int, as_json: int) -> None:
        """One stream of `ids` generated ids is over.

        It took `sent` bytes, and `plain` before compression; as JSON events it would have taken `as_json`.
        """
        form, coding = one_of(FORMATS, form), one_of(_CODINGS, coding)
        self._streams.labels(form, coding, one_of(_REASONS, reason)).inc()
        self._sent.labels(form, coding).inc(sent)
        self._plain.labels(form, coding).inc(plain)
        self._ids.labels(form, coding).inc(ids)
        self._json.labels(form, coding).inc(as_json)
