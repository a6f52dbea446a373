"""Every error that the SDK raises on purpose, as one tree.

Callers catch the branch that they can handle. A message names the thing with `!r`, says what was expected and what to
do next.

CodecError
├── MapError                        a token map can't be obtained or used
│   ├── MapHashMalformed            the hash that somebody wrote is not a sha256
│   ├── MapHashMismatch             the bytes are not the bytes that the hash names
│   ├── MapUnreachable              no such file, no answer, too large, or an address that we don't fetch
│   │   └── MapNotPublished         the origin has no map of that name
│   ├── MapDiscoveryInvalid         what an origin publishes about its maps can't be used
│   ├── MapTruncated                the file ends in the middle; `offset` says where
│   ├── NotAMap                     the bytes are not a token map, nor a tokenizer's file
│   └── MapUnsupported              a real tokenizer that we can't reproduce exactly; `what` names the part
├── UnknownTokenId                  an id that the map does not have (also a KeyError)
├── TextNotUnicode                  a string with a lone surrogate has no bytes, so no ids (also a ValueError)
├── LeafError                       a tool result does not keep the leaf contract
│   ├── LeafResultInvalid           the object given is not a tool result
│   └── CodecMetaMapMismatchError   ids of another map than the caller's; using them would show the model other text
├── BoltOnError                     a bolt-on tool, a call to it or its answer can't be used
│   ├── ManifestInvalid             not a manifest, or one that can't be used; `source` says which
│   ├── FragmentCacheInvalid        not a cache of fragments, or one for another map or another version of the texts
│   ├── SeamUnsafe                  cached ids and ids of the whole text would differ; `example` shows the text
│   ├── FragmentUnknown             a fragment, or one of its slots, that does not exist (also a LookupError)
│   └── CallInvalid                 not a call, or not an answer to one; `code` goes into the error answer
├── FrameError                      a stream of frames can't be read or written; `offset` is a byte of the stream
│   ├── FrameTruncated              it ends inside a frame, or before the frame that says `done`
│   ├── FrameInvalid                the bytes are not a frame, or the frame can't be written
│   ├── FrameTooLarge               a frame, or something in it, is over one of our limits
│   └── FormatUnavailable           a format that is unknown, or whose library is not installed
├── TrajectoryInvalid               a line of a trajectory file is invalid, or one that others continue is missing
└── CompressionError                a body can't be compressed or decompressed
    ├── BodyTooLarge                it grows past the limit when decompressed
    ├── BodyInvalid                 it is damaged, ends early, or was made with another dictionary
    └── CodingUnavailable           a coding that is unknown, or whose library is not installed
"""


class CodecError(Exception):
    """The root of the tree."""

    @property
    def message(self) -> str:
        """The sentence to show to a person."""
        return str(self.args[0]) if self.args else type(self).__name__

    def __str__(self) -> str:
        return self.message


class MapError(CodecError):
    """A token map can't be obtained or used."""


class MapHashMalformed(MapError):
    """The text given as a hash is not a sha256. Raised before anything is fetched."""


class MapHashMismatch(MapError):
    """The bytes read are not the bytes that the hash names: a changed file, or the wrong one."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            f"the map's hash is {actual!r}, expected {expected!r}: the file was changed, or is another map; "
            "fetch it again, or use the new hash if you trust the file"
        )
        self.expected = expected
        self.actual = actual


class MapUnreachable(MapError):
    """The source could not be read: `source` is what was asked for."""

    def __init__(self, message: str, *, source: str) -> None:
        super().__init__(message)
        self.source = source


class MapNotPublished(MapUnreachable):
    """The origin answers, but has no map of that name under `/.well-known/codec/`."""


class MapDiscoveryInvalid(MapError):
    """What an origin publishes about its maps is not a pointer, an index or a map."""


class MapTruncated(MapError):
    """The file is shorter than its own header says: `offset` is the byte where more was expected."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class NotAMap(MapError):
    """The bytes hold no token map (or no tokenizer from which one could be built)."""


class MapUnsupported(MapError):
    """A real tokenizer of a kind that we can't reproduce exactly: `what` names the part that prevents it."""

    def __init__(self, message: str, *, what: str) -> None:
        super().__init__(message)
        self.what = what


class UnknownTokenId(CodecError, KeyError):
    """An id that the map does not have."""

    def __init__(self, token_id: int, map_id: str) -> None:
        super().__init__(f"map {map_id!r} has no token with the id {token_id!r}; check ids with has_id first")
        self.token_id = token_id


class TextNotUnicode(CodecError, ValueError):
    """A string with a lone surrogate has no UTF-8 bytes, so no tokenizer gives it ids."""


class LeafError(CodecError):
    """A tool result does not keep the leaf contract."""


class LeafResultInvalid(LeafError):
    """The object given is not a tool result: it has no list of content blocks."""


class CodecMetaMapMismatchError(LeafError):
    """A block carries ids of another map than the caller's. Its ids must not be used."""

    def __init__(self, expected: str, found: str, text_index: int) -> None:
        super().__init__(
            f"content[{text_index}] carries ids of map {found!r}, expected {expected!r}; "
            "tokenize its text with your own map instead"
        )
        self.expected = expected
        self.found = found
        self.text_index = text_index


class BoltOnError(CodecError):
    """A bolt-on tool, a call to it or its answer can't be used."""


class ManifestInvalid(BoltOnError):
    """The bytes, the file or the folder hold no usable manifest: `source` is what was read."""

    def __init__(self, message: str, *, source: str) -> None:
        super().__init__(message)
        self.source = source


class FragmentCacheInvalid(BoltOnError):
    """Not a cache of fragments, or one that was made for another map or from other texts. Build it again."""


class SeamUnsafe(BoltOnError):
    """The ids put together from cached parts are not those of the whole text: `example` is that text."""

    def __init__(self, message: str, *, example: str) -> None:
        super().__init__(message)
        self.example = example


class FragmentUnknown(BoltOnError, LookupError):
    """A fragment that the tool does not have, or a slot without a value, or a value without a slot."""


class CallInvalid(BoltOnError):
    """The bytes are not a tool call or an answer to one, or can't be used: `code` goes into the error answer."""

    def __init__(self, message: str, *, code: str = "E_BAD_CALL") -> None:
        super().__init__(message)
        self.code = code


class FrameError(CodecError):
    """A stream of frames can't be read or written: `offset` is the byte of the (decompressed) stream it is about."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class FrameTruncated(FrameError):
    """The stream ends inside a frame, or before a frame says `done`: `offset` is where more was expected."""


class FrameInvalid(FrameError):
    """The bytes are not a frame, or the frame can't be written: `offset` is where it starts."""


class FrameTooLarge(FrameError):
    """A frame, or a number or a list in it, is over a limit: `offset` is where the frame starts."""


class FormatUnavailable(FrameError):
    """A stream format that is unknown, or whose library is not installed. Raised before the first byte."""


class CompressionError(CodecError):
    """A body can't be compressed or decompressed."""


class BodyTooLarge(CompressionError):
    """A body grows past the limit when it is decompressed. The call that raises this returns none of it."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body grows past {limit!r} bytes when it is decompressed; "
            "send less at once, or raise the limit if you trust the sender"
        )
        self.limit = limit


class BodyInvalid(CompressionError):
    """A compressed body is damaged, ends early, or was made with another dictionary."""


class CodingUnavailable(CompressionError):
    """A content coding that is unknown, or whose library is not installed."""


class TrajectoryInvalid(CodecError):
    """A line of a trajectory file is invalid or contradicts others, or a line that others continue is missing."""
