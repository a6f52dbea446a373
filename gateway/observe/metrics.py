"""Every metric of the gateway, defined here and in modules beside it (`backend_metrics.py`, `client_metrics.py`).

Turns what the packages report ("the shim tokenized 40 ids for this map") into Prometheus series under the prefix
`codec_`, in base units (seconds, ids). It owns its registry, so two gateways in one process do not share numbers. A
label is always a map id, the name of a configured server or a word from a fixed list (`exposition.py`). It knows no
tools, requests or HTTP. `serve/admin/admin_pages.py` shows what it renders.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from gateway.observe.backend_metrics import EngineMetrics, Makers, ServerMetrics, SharedMetrics, SlotFileMetrics
from gateway.observe.client_metrics import AccessMetrics, ConnectionMetrics, WireMetrics
from gateway.observe.exposition import (
    CHAT_OUTCOMES,
    DROP_REASONS,
    LIST_KINDS,
    LOSS_REASONS,
    MAP_ID,
    MAPS_BOUND,
    OTHER,
    REASONS,
    SERVER_NAME,
    SERVERS_BOUND,
    SOURCES,
    TOOL_OUTCOMES,
    BoundedLabel,
    Described,
    WithoutCreated,
    count_tasks,
    one_of,
    read_counter,
    read_histogram,
)

SpliceSource = Literal["leaf", "shim", "scaffold"]

_TOOL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ENGINE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """What the gateway counts. There is one object per process, handed to the packages that report."""

    content_type: Final = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        """Create every series at once, so that a rate has a zero to start from."""
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._maps = BoundedLabel(MAP_ID, MAPS_BOUND)
        self._servers = BoundedLabel(SERVER_NAME, SERVERS_BOUND)
        self._since = datetime.now(UTC)
        self._build_tokens()
        self._build_upstreams()
        self._build_engine()
        self.access = AccessMetrics(self._counter)
        self.connections = ConnectionMetrics(self._counter, self._gauge)
        self.wire = WireMetrics(self._counter)
        self.shared = SharedMetrics(self._counter, self._gauge)
        self.slot_files = SlotFileMetrics(self._counter, self._gauge)
        self.engines = EngineMetrics(self._counter, self._gauge, BoundedLabel(SERVER_NAME, SERVERS_BOUND))
        makers = Makers(self.registry, self.described, self._counter, self._gauge, self._histogram)
        self.servers = ServerMetrics(makers, self._servers)
        self._gauge("codec_tasks", "Tasks of the event loop, running and waiting.").set_function(count_tasks)
        self._held = self._counter(
            "codec_loop_held", "Times that something held the event loop for more than 250 ms; the log says what."
        )
        ProcessCollector(registry=self.registry)

    def _build_tokens(self) -> None:
        self._tokenized = self._counter("codec_shim_tokenize_calls", "Text blocks that the shim tokenized.", "map")
        self._shim_ids = self._counter("codec_shim_ids", "Token ids that the shim made.", "map")
        self._shim_seconds = self._counter("codec_shim_seconds", "Seconds that the shim spent tokenizing.", "map")
        self._detokenized = self._counter(
            "codec_shim_detokenize_calls", "Lists of ids that the shim turned into text.", "map"
        )
        self._bypassed = self._counter("codec_leaf_bypasses", "Text blocks whose ids came from a leaf tool.", "map")
        self._leaf_ids = self._counter("codec_leaf_ids", "Token ids from leaf tools that were used.", "map")
        self._map_series: dict[tuple[str, tuple[Counter, ...]], tuple[Counter, ...]] = {}
        self._rejected = self._counter(
            "codec_leaf_rejected", "Text blocks whose leaf ids failed the checks, by reason.", "reason"
        )
        self._mismatched = self._counter(
            "codec_map_mismatches", "Text blocks whose leaf ids belong to a map that does not match the session's."
        )
        for reason in REASONS:
            self._rejected.labels(reason)

    def _build_upstreams(self) -> None:
        self._up = self._gauge("codec_upstream_up", "Whether the MCP server answers (1) or not (0).", "server")
        self._restarts = self._counter("codec_upstream_restarts", "Times that the MCP server was restarted.", "server")
        self._calls = self._counter(
            "codec_tool_calls", "Tool calls to the MCP server, by outcome.", "server", "outcome"
        )
        # The library takes 5 µs to find a series, and every call needs two.
        self._call_series: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        self._call_seconds = self._histogram(
            "codec_tool_call_seconds", "Duration of a tool call to the MCP server in seconds.", _TOOL_SECONDS, "server"
        )

        self._list_changes = self._counter(
            "codec_list_changes", "Times that the MCP server reported a changed list.", "server", "list"
        )
        self._pins = self._counter(
            "codec_pin_breaks", "Tool definitions that differed from the ones first seen.", "server"
        )
        self._dropped = self._counter(
            "codec_notifications_dropped", "Notifications from MCP servers that reached no client, by reason.", "reason"
        )
        for reason in DROP_REASONS:
            self._dropped.labels(reason)

    def _build_engine(self) -> None:
        self._kept = self._counter(
            "codec_results_kept", "Results of tools that were too large for the model and were kept for it to read on."
        )
        self._kept_bytes = self._gauge("codec_kept_result_bytes", "Bytes of kept results of tools in memory.")
        build = self._gauge("codec_build_info", "Always 1; the label is the gateway's version.", "version")
        build.labels(version("codec-gateway")).set(1)
        self._engine_up = self._gauge("codec_engine_up", "Whether an engine answers and its map is proven (1 or 0).")
        self._prompt_tokens = self._counter(
            "codec_prompt_tokens",
            "Prompt tokens of finished requests, as `usage` in their answers counts them; a request whose engine "
            "reported nothing is left out.",
        )
        self._cached_tokens = self._counter(
            "codec_prompt_cached_tokens",
            "Those of codec_prompt_tokens that came from the engine's cache, so that they were not recomputed.",
        )
        self._generations = self._counter("codec_generations", "Generations that the engine finished.")
        self._prompt_ids = self._counter("codec_generation_prompt_ids", "Prompt ids that the engine processed.")
        self._reused_ids = self._counter("codec_generation_reused_ids", "Prompt ids that the KV cache already held.")
        self._prefilled_ids = self._counter(
            "codec_prefilled_ids",
            "Ids of the chat template that were processed while a tool ran; the generation that follows reuses them.",
        )
        self._generated_ids = self._counter("codec_generation_ids", "Ids that the engine generated.")
        self._first = self._histogram(
            "codec_generation_first_id_seconds", "Seconds from the request to the first id.", _ENGINE_SECONDS
        )
        self._generation_seconds = self._histogram(
            "codec_generation_seconds", "Seconds that a whole generation took.", _ENGINE_SECONDS
        )
        # The library takes 5 µs to find a series, so these are looked up by our own words.
        spliced = self._counter("codec_spliced_ids", "Ids appended to a generation, by who made them.", "source")
        self._spliced = {source: spliced.labels(source) for source in SOURCES[:-1]}
        repaired = self._counter(
            "codec_repaired_ids",
            "Generated ids that the engine's stream left out, by whether they were found again.",
            "result",
        )
        self._repaired = {result: repaired.labels(result) for result in ("repaired", "ambiguous", "missed")}
        self._padded = self._counter(
            "codec_padded_ids",
            "Generated ids that only the engine's padded vocabulary has, not the map: they have no text.",
        )
        self._guesses = self._counter(
            "codec_guessed_turns",
            "Turns with an ambiguous repair, by whether the next turn's cache showed the guess to be right or wrong.",
            "result",
        )
        self._refused_grammars = self._counter(
            "codec_refused_grammars",
            "Tools whose calls may have any JSON object as arguments, because the engine refused their grammar.",
        )
        lost = self._counter(
            "codec_prompt_ids_lost",
            "Ids of a conversation that the engine had held and had to process again, by reason.",
            "reason",
        )
        self._lost = {reason: lost.labels(reason) for reason in LOSS_REASONS}
        chats = self._counter("codec_chat_requests", "Chat requests that were answered, by outcome.", "outcome")
        self._chats = {outcome: chats.labels(outcome) for outcome in CHAT_OUTCOMES}

    def _counter(self, name: str, help: str, *labels: str) -> Counter:  # noqa: A002 - the library's own word
        self.described.append(Described(f"{name}_total", "counter", labels, help))
        return Counter(name, help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:  # noqa: A002
        self.described.append(Described(name, "gauge", labels, help))
        return Gauge(name, help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:  # noqa: A002
        self.described.append(Described(name, "histogram", labels, help))
        return Histogram(name, help, labels, registry=self.registry, buckets=buckets)

    def shim_tokenized(self, map_id: str, *, ids: int, seconds: float) -> None:
        """The shim turned one text block into `ids` ids."""
        calls, made, spent = self._series_of(map_id, (self._tokenized, self._shim_ids, self._shim_seconds))
        calls.inc()
        made.inc(ids)
        spent.inc(seconds)

    def shim_detokenized(self, map_id: str) -> None:
        """The shim turned one list of ids into text."""
        self._detokenized.labels(self._maps.admit(map_id)).inc()

    def leaf_bypassed(self, map_id: str, *, ids: int) -> None:
        """One block's `ids` leaf ids passed the checks: the shim had nothing to do."""
        blocks, sent = self._series_of(map_id, (self._bypassed, self._leaf_ids))
        blocks.inc()
        sent.inc(ids)

    def _series_of(self, map_id: str, families: tuple[Counter, ...]) -> tuple[Counter, ...]:
        """The series of a map, looked up once: in a call, finding a counter by its label costs more than counting."""
        series = self._map_series.get((map_id, families))
        if series is None:
            label = self._maps.admit(map_id)
            series = tuple(family.labels(label) for family in families)
            if label == map_id:
                self._map_series[map_id, families] = series
        return series

    def leaf_rejected(self, reason: str) -> None:
        """One block's leaf ids failed the checks; `reason` is one of REASONS."""
        self._rejected.labels(one_of(REASONS, reason)).inc()

    def map_mismatched(self) -> None:
        """One block's leaf ids are of a map that does not fit the session's."""
        self._mismatched.inc()

    def upstream_up(self, server: str, up: bool) -> None:
        """The MCP server answers, or no longer does."""
        self._up.labels(self._servers.admit(server)).set(up)

    def upstream_restarted(self, server: str) -> None:
        """The MCP server was started again after it had died."""
        self._restarts.labels(self._servers.admit(server)).inc()

    def list_changed(self, server: str, kind: str) -> None:
        """The MCP server said that what it lists changed; `kind` is one of LIST_KINDS."""
        self._list_changes.labels(self._servers.admit(server), one_of(LIST_KINDS, kind)).inc()

    def pin_broken(self, server: str) -> None:
        """A tool's definition is not the pinned one."""
        self._pins.labels(self._servers.admit(server)).inc()

    def notification_dropped(self, reason: str) -> None:
        """A notification reached no client; `reason` is one of DROP_REASONS."""
        self._dropped.labels(one_of(DROP_REASONS, reason)).inc()

    def tool_called(self, server: str, outcome: str, seconds: float) -> None:
        """One tool call ended; `outcome` is one of TOOL_OUTCOMES (`tool_error`: an answer with `isError`)."""
        series = self._call_series.get((server, outcome))
        if series is None:
            label = self._servers.admit(server)
            series = self._calls.labels(label, one_of(TOOL_OUTCOMES, outcome)), self._call_seconds.labels(label)
            if len(self._call_series) < SERVERS_BOUND * len(TOOL_OUTCOMES):
                self._call_series[server, outcome] = series
        series[0].inc()
        series[1].observe(seconds)

    def call_times(self, *servers: str) -> list[tuple[float, int]]:
        """How long the tool calls to configured servers took: each upper bound in seconds, and how many calls."""
        return read_histogram(self._call_seconds, *map(self._servers.admit, servers))

    def engine_up(self, up: bool) -> None:
        """The engine answers with a proven map, or no longer does."""
        self._engine_up.set(up)

    def generation_finished(self, *, prompt_n: int, cache_n: int, generated: int, ttft: float, seconds: float) -> None:
        """One generation ended: prompt ids processed and reused, ids generated, seconds to the first id and in all."""
        self._generations.inc()
        self._prompt_ids.inc(prompt_n)
        self._reused_ids.inc(cache_n)
        self._generated_ids.inc(generated)
        self._first.observe(ttft)
        self._generation_seconds.observe(seconds)

    def request_answered(self, *, prompt: int, cached: int) -> None:
        """A request had `prompt` prompt tokens, and `cached` of them came from the cache."""
        self._prompt_tokens.inc(prompt)
        self._cached_tokens.inc(cached)

    def get_prompt_tokens(self) -> dict[str, int]:
        """Prompt tokens of all finished requests, and those of them that came from the cache."""
        counted = {"prompt_tokens": self._prompt_tokens, "cached_tokens": self._cached_tokens}
        return {name: int(sum(read_counter(counter).values())) for name, counter in counted.items()}

    def ids_spliced(self, source: SpliceSource, n: int) -> None:
        """`n` ids were appended to a generation."""
        self._spliced[source].inc(n)

    def result_kept(self) -> None:
        """A tool's result was kept, since it was too large for the model."""
        self._kept.inc()

    def follow_kept_results(self, size: Callable[[], int]) -> None:
        """Show what `size` returns as the bytes of kept results."""
        self._kept_bytes.set_function(size)

    def ids_prefilled(self, n: int) -> None:
        """`n` ids were processed before the result of a tool was there."""
        self._prefilled_ids.inc(n)

    def ids_repaired(self, *, repaired: int, ambiguous: int, missed: int) -> None:
        """Ids that the engine's stream left out: found, found in more than one way, not found."""
        for result, n in (("repaired", repaired), ("ambiguous", ambiguous), ("missed", missed)):
            if n:
                self._repaired[result].inc(n)

    def ids_padded(self, n: int) -> None:
        """The engine generated `n` ids that the map does not have."""
        self._padded.inc(n)

    def guess_judged(self, *, right: bool) -> None:
        """A turn that held guessed ids was judged by the KV reuse of the turn after it."""
        self._guesses.labels("right" if right else "wrong").inc()

    def prompt_ids_lost(self, reason: str, n: int) -> None:
        """A request processed `n` ids again that the engine had held for its conversation."""
        self._lost.get(reason, self._lost[OTHER]).inc(n)

    def grammar_refused(self) -> None:
        """The engine refused the grammar of a tool."""
        self._refused_grammars.inc()

    def chat_request(self, outcome: str) -> None:
        """One chat request was answered; `outcome` is one of CHAT_OUTCOMES."""
        self._chats.get(outcome, self._chats[OTHER]).inc()

    def loop_held(self) -> None:
        """Something held the event loop for too long."""
        self._held.inc()

    def get_shim_metrics(self) -> dict[str, Any]:
        """What tokenizing cost and what leaf tools saved, as plain JSON values (counts, seconds, an ISO time)."""
        columns: dict[str, Counter] = {
            "tokenize_calls": self._tokenized,
            "detokenize_calls": self._detokenized,
            "leaf_bypasses": self._bypassed,
            "shim_ids": self._shim_ids,
            "leaf_ids": self._leaf_ids,
            "shim_seconds": self._shim_seconds,
        }
        counts = {column: read_counter(counter) for column, counter in columns.items()}
        maps = sorted({label for values in counts.values() for label in values})
        totals = {c: int(sum(counts[c].values())) for c in ("tokenize_calls", "detokenize_calls", "leaf_bypasses")}
        return {
            **totals,
            "by_map": {m: {c: _plain(c, counts[c].get(m, 0.0)) for c in columns} for m in maps},
            "mismatches": int(sum(read_counter(self._mismatched).values())),
            "rejected": {reason: int(n) for reason, n in read_counter(self._rejected).items() if n},
            "since": self._since.isoformat(timespec="seconds"),
        }

    def render(self) -> bytes:
        """Return the text exposition of every metric, for `content_type`."""
        return generate_latest(WithoutCreated(self.registry))


def _plain(column: str, value: float) -> float | int:
    return round(value, 6) if column.endswith("_seconds") else int(value)
