"""A run's tallies as one JSON object: what was asked, the figures of each server, and how each compares with the first.

Turns tallies into the object that `--json` writes and that table and picture are made from. Times are milliseconds.
`FORMAT` changes when a field is removed or means something else. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from codec_bench.sample import Sample, Tally
from codec_bench.summary import Comparison, Ratio, busy_seconds, compared, prompts_of, spread

FORMAT: Final = 1
_MILLISECONDS: Final = ("first", "a_token", "whole", "connect", "late")
_BYTES: Final = ("socket_bytes", "body_bytes", "decoded_bytes")
_COUNTS: Final = ("prompt_tokens", "completion_tokens")


def server_report(url: str, model: str, tally: Tally) -> dict[str, Any]:
    """The figures of one server."""
    seconds = busy_seconds(tally)
    return {
        "url": url,
        "model": model,
        "answered": len(tally.samples),
        "failed": tally.failed,
        "unfinished": tally.unfinished,
        "errors": {label: {"count": count, "first": tally.words[label]} for label, count in tally.errors.items()},
        **{f"{name}_ms": _spread(list(tally.values(name)), 1e3) for name in _MILLISECONDS},
        "between_ms": _between(tally),
        **{name: _spread(list(tally.values(name))) for name in (*_BYTES, *_COUNTS)},
        "bytes_a_token": _spread(
            [each.socket_bytes / each.completion_tokens for each in tally.samples if each.completion_tokens]
        ),
        "compression": _compression(tally),
        "tokens_a_second": _round(sum(tally.values("completion_tokens")) / seconds) if seconds else None,
        "prompt": _prompt(tally),
        "cpu_ms": _round(tally.cpu * 1e3 / len(tally.samples)) if tally.cpu and tally.samples else None,
    }


def comparison_report(url: str, beside: str, first: Tally, other: Tally) -> dict[str, Any]:
    """One server compared with the first: ratios of its figures to the first one's, below 1 if it is better."""
    found: Comparison = compared(first, other)
    return {
        "url": url,
        "beside": beside,
        "ratios": {name: _ratio(ratio) for name, ratio in found.ratios.items()},
        "ids": {"same": found.same_ids, "other": found.other_ids},
        "text": {"same": found.same_text, "other": found.other_text},
    }


def report_of(
    urls: Sequence[str],
    models: Sequence[str],
    tallies: Sequence[Tally],
    seconds: float,
    about: Mapping[str, Any],
    answer_of: Callable[[int], int] | None = None,
) -> dict[str, Any]:
    """The whole report. `about`: what was asked, and by whom. `answer_of`: returns the length of a conversation's
    answers, if figures are to be given by length."""
    asked = list(zip(urls, tallies, strict=True))
    return {
        "format": FORMAT,
        **about,
        "seconds": _round(seconds),
        "servers": [server_report(*each) for each in zip(urls, models, tallies, strict=True)],
        "by_answer": [row for each in asked for row in _by_answer(*each, answer_of)] if answer_of else [],
        "comparisons": [comparison_report(url, urls[0], tallies[0], tally) for url, tally in asked[1:]],
        "samples": [{"url": url, **_sample(each)} for url, tally in asked for each in tally.samples],
    }


def _by_answer(url: str, tally: Tally, answer_of: Callable[[int], int]) -> Iterator[dict[str, Any]]:
    groups: dict[int, list[Sample]] = {}
    for sample in tally.samples:
        groups.setdefault(answer_of(sample.position.conversation), []).append(sample)
    for tokens, samples in sorted(groups.items()):
        yield {
            "url": url,
            "answer_tokens": tokens,
            "answered": len(samples),
            "completion_tokens": _spread([each.completion_tokens for each in samples if each.completion_tokens]),
            "first_ms": _spread([each.first for each in samples], 1e3),
            "whole_ms": _spread([each.whole for each in samples], 1e3),
            **{name: _spread([getattr(each, name) for each in samples]) for name in _BYTES},
            "bytes_a_token": _spread([each.bytes_a_token for each in samples if each.bytes_a_token]),
        }


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "conversation": sample.position.conversation,
        "step": sample.position.step,
        "began_ms": _round(sample.began * 1e3),
        **{f"{name}_ms": _scaled(getattr(sample, name), 1e3) for name in _MILLISECONDS},
        **{name: getattr(sample, name) for name in (*_BYTES, *_COUNTS, "cached_tokens")},
        "text": None if sample.text is None else sample.text.hex(),
        "ids": None if sample.ids is None else sample.ids.hex(),
    }


def _between(tally: Tally) -> dict[str, Any] | None:
    """The quantiles of the histogram, which has no other figures."""
    if not tally.between.count:
        return None
    found = {f"p{part}": _scaled(tally.between.quantile(part / 100), 1e3) for part in (50, 90, 99)}
    return {"count": tally.between.count, **found}


def _compression(tally: Tally) -> float | None:
    """How many times smaller bodies were when they were sent than they are when decoded."""
    sent, decoded = sum(tally.values("body_bytes")), sum(tally.values("decoded_bytes"))
    return _round(decoded / sent) if sent else None


def _prompt(tally: Tally) -> dict[str, Any] | None:
    told = prompts_of(tally)
    if not told.told:
        return None
    return {**asdict(told), "processed": told.processed, "reused": _scaled(told.reused, 1)}


def _spread(values: Sequence[float], factor: float = 1.0) -> dict[str, Any] | None:
    found = spread(values)
    if found is None:
        return None
    count = found.count
    return {"count": count} | {k: _round(v * factor) for k, v in asdict(found).items() if k != "count"}


def _ratio(ratio: Ratio) -> dict[str, Any]:
    return {
        "ratio": _round(ratio.middle),
        "low": _scaled(ratio.low, 1),
        "high": _scaled(ratio.high, 1),
        "pairs": ratio.pairs,
    }


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else _round(value * factor)


def _round(value: float) -> float:
    """Round to four decimal places, but never to fewer than four significant digits."""
    return round(value, 4) if abs(value) >= 0.1 else float(f"{value:.4g}")
