"""Reads an answer in frames of token ids, as the gateway sends it if a client asks for them.

Does what `answer.py` does for JSON. Each id is a piece; there is no text in frames. Sans-IO.
"""

from codec_bench.answer import AnswerContent, AnswerFault
from leaf_sdk.errors import FrameError
from leaf_sdk.wire import MEDIA_TYPES, Format, Frame, FrameReader


class FramesReader:
    """Reads one answer."""

    def __init__(self, form: Format, content_type: str) -> None:
        """Raises `AnswerFault` if a body of this type holds no such frames."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind != MEDIA_TYPES[form]:
            raise AnswerFault(
                "not an answer", f"it was asked for {form} frames and answered with the content type {kind[:80]!r}"
            )
        self.content = AnswerContent()
        self._reader = FrameReader(form)

    def feed(self, data: bytes) -> int:
        """Read more bytes; returns how many pieces of the answer they completed. Raises `AnswerFault`."""
        try:
            return sum(self._frame(frame) for frame in self._reader.feed(data))
        except FrameError as error:
            raise AnswerFault("not an answer", str(error)) from None

    def close(self) -> int:
        """End the body. Raises `AnswerFault` if the answer is incomplete."""
        try:
            self._reader.close()
        except FrameError as error:
            raise AnswerFault("not an answer" if self._reader.done else "broke off", str(error)) from None
        return 0

    def _frame(self, frame: Frame) -> int:
        extras = frame.extras
        if extras.error is not None or frame.finish_reason == "error":
            raise AnswerFault("told an error", (extras.error or "it does not say which error")[:300])
        ids = frame.ids + extras.region_ids
        self.content.add_ids(ids)
        if frame.finish_reason is not None:
            self.content.end(frame.finish_reason)
        if (usage := extras.usage) is not None:
            self.content.count(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        return len(ids)
