"""The wire: streams of token ids as frames, compressed so that they still stream. Sans-IO: bytes in, frames out.

`FrameWriter` and `FrameReader` know the formats, `FlushGate` decides when frames are sent, `open_encoder` and `Decoder`
know the content codings, `choose` decides which coding a client gets. Builds on `errors` alone, beside `vocab`.
"""

from .choose_coding import Choice, Reason, choose
from .compression import CODINGS, Coding, Effort, Encoder, available_codings, open_encoder
from .decompression import MAX_BODY, Decoder
from .dictionary import Dictionary, dictionary_for, train
from .flush import AT_ONCE, BATCH, INTERACTIVE, FlushGate, FlushPolicy
from .frame import DEFAULT_LIMITS, MAX_ID, NO_EXTRAS, Extras, Frame, Limits, Spliced, ToolCall, Usage, merge
from .stream import MEDIA_TYPES, Format, FrameReader, FrameWriter, available_formats

__all__ = [
    "AT_ONCE",
    "BATCH",
    "CODINGS",
    "DEFAULT_LIMITS",
    "INTERACTIVE",
    "MAX_BODY",
    "MAX_ID",
    "MEDIA_TYPES",
    "NO_EXTRAS",
    "Choice",
    "Coding",
    "Decoder",
    "Dictionary",
    "Effort",
    "Encoder",
    "Extras",
    "FlushGate",
    "FlushPolicy",
    "Format",
    "Frame",
    "FrameReader",
    "FrameWriter",
    "Limits",
    "Reason",
    "Spliced",
    "ToolCall",
    "Usage",
    "available_codings",
    "available_formats",
    "choose",
    "dictionary_for",
    "merge",
    "open_encoder",
    "train",
]
