"""An `Accept-Encoding` header, the flush policy and the expected length to a content coding, and the reason for it.

The client's weights come first; among codings of equal weight the measurement decides. Knows no header but this one
and opens no encoder. Source: RFC 9110 12.5.3 for the header, `bench/results/wire.json` for the order.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .compression import CODINGS, Coding, Effort
from .flush import FlushPolicy

_RARELY: Final = 1.0
"""Seconds: if flushes may be this far apart, a body is as good as whole."""
_SHORT: Final[dict[Effort, int]] = {"streaming": 16, "whole": 64}
"""Streams of no more ids than this are smaller uncompressed: gzip adds 18 bytes to a body, and nothing repeats yet."""
_ORDER: Final[dict[Effort, tuple[Coding, ...]]] = {
    "streaming": ("gzip", "br", "zstd", "identity"),
    "whole": ("br", "gzip", "zstd", "identity"),
}
_ORDER_WITH_DICTIONARY: Final[dict[Effort, tuple[Coding, ...]]] = {
    "streaming": ("gzip", "br", "zstd", "identity"),
    "whole": ("zstd", "br", "gzip", "identity"),
}
"""Best first, by measurement. A flush costs gzip 2 to 3 bytes and the others 5 or more, and no dictionary makes up for
that; once flushes are rare, the dictionary decides, and without one br is the smallest."""

_UNASKED: Final = 1e-6
"""The weight of identity where the client does not name it: acceptable, but less than any weight that can be named."""


class Reason(StrEnum):
    """Why a coding was chosen. A closed set, fit for a metric's label."""

    NOT_ASKED = "not_asked"
    """The request has no Accept-Encoding."""
    TOO_SHORT = "too_short"
    """The stream is so short that compressing would make it longer."""
    CLIENT_WEIGHTS = "client_weights"
    """The client prefers this one, by its q-values."""
    MEASURED_BEST = "measured_best"
    """The best, by measurement, of several that the client prefers equally."""
    ONLY_ONE = "only_one"
    """The only one that client and server have in common."""
    NO_DICTIONARY = "no_dictionary"
    """zstd was asked for, but there is no dictionary for this stream: this is the best of the others."""
    NONE_ACCEPTED = "none_accepted"
    """The client refuses everything that we have, identity included: identity is sent anyway."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A coding, and why it was chosen."""

    coding: Coding
    reason: Reason
    effort: Effort = "streaming"
    """The effort to pass to `open_encoder`."""


def choose(
    accept_encoding: str | None,
    policy: FlushPolicy,
    *,
    available: Collection[Coding] = CODINGS,
    has_dictionary: bool = False,
    plain_zstd: bool = False,
    expected_ids: int | None = None,
) -> Choice:
    """Choose the coding of one stream.

    Args:
        accept_encoding: the header's value; None or "" if there is none.
        policy: when the stream is flushed.
        available: what the server can write.
        has_dictionary: whether there is a zstd dictionary for this format and map; Codec's clients refuse zstd without.
        plain_zstd: whether zstd without a dictionary may be used: for JSON streams, or where it was asked for by name.
        expected_ids: the most ids that the stream can have, if known.
    """
    weights = _weights(accept_encoding or "")
    if not (accept_encoding or "").strip():
        return Choice("identity", Reason.NOT_ASKED)
    usable: dict[Coding, float] = {
        coding: weights[coding] for coding in CODINGS if coding in available and weights[coding] > 0
    }
    no_dictionary = "zstd" in usable and not (has_dictionary or plain_zstd)
    if no_dictionary:
        del usable["zstd"]
    if not usable:
        return Choice("identity", Reason.NONE_ACCEPTED)
    effort: Effort = "whole" if policy.max_delay >= _RARELY else "streaming"
    if expected_ids is not None and expected_ids <= _SHORT[effort] and "identity" in usable:
        return Choice("identity", Reason.TOO_SHORT)
    order = (_ORDER_WITH_DICTIONARY if has_dictionary else _ORDER)[effort]
    coding = min(usable, key=lambda each: (-usable[each], order.index(each)))
    return Choice(coding, _reason(usable, coding, no_dictionary), effort)


def _reason(usable: Mapping[Coding, float], coding: Coding, no_dictionary: bool) -> Reason:
    if no_dictionary:
        return Reason.NO_DICTIONARY
    asked = [weight for weight in usable.values() if weight > _UNASKED]
    if len(asked) <= 1:
        return Reason.ONLY_ONE
    return Reason.MEASURED_BEST if asked.count(usable[coding]) > 1 else Reason.CLIENT_WEIGHTS


def _weights(value: str) -> dict[Coding, float]:
    """Read q-values. A coding that is not named gets that of `*`; identity, if not named, is acceptable as the last."""
    named: dict[str, float] = {}
    for part in value.split(","):
        name, _, parameters = part.partition(";")
        named[name.strip().lower()] = _q(parameters)
    star = named.get("*")
    weights: dict[Coding, float] = {coding: named.get(coding, star or 0.0) for coding in CODINGS}
    if "identity" not in named and star != 0.0:
        weights["identity"] = _UNASKED
    return weights


def _q(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, number = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(max(float(number), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
