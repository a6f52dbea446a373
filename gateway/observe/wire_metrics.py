"""The metrics of streams of frames: how many, in which form, and what they weighed.

Labels are words of fixed lists: formats, codings and the picker's reasons.
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
    """What is counted of streams."""

    def __init__(self, counter: Callable[..., Counter]) -> None:
        self._streams = counter(
            "codec_wire_streams",
            "Streams of frames, by form and why their coding was chosen.",
            "format",
            "coding",
            "reason",
        )
        self._sent = counter("codec_wire_sent_bytes", "Bytes of their bodies, as they were sent.", "format", "coding")
        self._plain = counter("codec_wire_plain_bytes", "The same before compression.", "format", "coding")
        self._ids = counter("codec_wire_ids", "Generated ids in them.", "format", "coding")
        self._json = counter(
            "codec_wire_json_bytes",
            "What events of JSON would have weighed in their place, at the least.",
            "format",
            "coding",
        )

    def stream(self, form: str, coding: str, reason: str, *, sent: int, plain: int, ids: int, as_json: int) -> None:
        """One stream of `ids` generated ids is over.

        It weighed `sent` bytes, and `plain` before compression; as events of JSON it would have weighed `as_json`.
        """
        form, coding = one_of(FORMATS, form), one_of(_CODINGS, coding)
        self._streams.labels(form, coding, one_of(_REASONS, reason)).inc()
        self._sent.labels(form, coding).inc(sent)
        self._plain.labels(form, coding).inc(plain)
        self._ids.labels(form, coding).inc(ids)
        self._json.labels(form, coding).inc(as_json)
