"""Mutants that do what the module does, or as much as anybody could ask for, so that no test notices them, and why.

Each is named by its module and by what it says; where a module has two that say the same, both are meant. `run` leaves
them out, and `test_operators` holds that each is still one of its module's mutants.
"""

from typing import Final

_BOUND = "how much work is too much is no promise: a little more is as good"
_KEPT = "how many are remembered is no promise: one more is as good"
_LENGTH = "how long a part of a message may be, or a random name"
_SHORT_CUT = "a short cut"
_MADE_UP = "equal only for a sum that no clock gives: the bound lies a millionth beside the numbers that mean something"

EQUIVALENT: Final = {
    "gateway/agent/calls/runner.py: 0 < unread <= _UNREAD  ->  0 <= unread <= _UNREAD": (
        "the same text, made now or when read"
    ),
    "gateway/agent/generate/model_output.py: if not self._held and ids[-1] not in self._specials:  ->  if False:": (
        _SHORT_CUT
    ),
    "gateway/agent/results/json_path.py: if (bounds.start or 0) >= 0 and (bounds.stop or 0) >= 0:  ->  if False:": (
        _SHORT_CUT
    ),
    "gateway/agent/results/json_path.py: (bounds.start or 0) >= 0  ->  (bounds.start or 0) > 0": _SHORT_CUT,
    "gateway/agent/results/json_path.py: (bounds.stop or 0) >= 0  ->  (bounds.stop or 0) > 0": _SHORT_CUT,
    "gateway/agent/results/id_slices.py: left < 0  ->  left <= 0": _BOUND,
    "gateway/breaker.py: self._current + 1  ->  self._current - 1": "any number that was not given before is as good",
    "gateway/app/loop_watch.py: perf_counter() - beat > self._longest + _PACE  ->  "
    "perf_counter() - beat >= self._longest + _PACE": _MADE_UP,
    "gateway/context/memory/message_digests.py: len(results) > 1  ->  len(results) >= 1": _SHORT_CUT,
    "gateway/context/history/client_messages.py: if isinstance(content, str):  ->  if False:": _SHORT_CUT,
    "gateway/deadlines.py: number < self._next  ->  number <= self._next": "the step that is awaited is known",
    "gateway/engine/rendering/foreign_text.py: 200  ->  400": _SHORT_CUT,
    "gateway/engine/rendering/foreign_text.py: 4096  ->  8192": _KEPT,
    "gateway/engine/rendering/foreign_text.py: if not places:  ->  if False:": _SHORT_CUT,
    "gateway/engine/rendering/foreign_text.py: len(text) <= _SHORT  ->  len(text) < _SHORT": _SHORT_CUT,
    "gateway/engine/rendering/foreign_text.py: min(self._longest, len(line) + 1)  ->  "
    "max(self._longest, len(line) + 1)": _SHORT_CUT,
    "gateway/engine/embedded/model_file.py: 512  ->  1024": "the first bytes tell what a file is",
    "gateway/engine/embedded/engine_process.py: 50  ->  100": _KEPT,
    "gateway/engine/interface.py: 0 <= self.prompt_n <= prompt - cached  ->  0 <= self.prompt_n < prompt - cached": (
        "the same figures, made anew or not"
    ),
    "gateway/engine/interface.py: min(len(held), len(prompt))  ->  max(len(held), len(prompt))": (
        "beyond its end one is not like the other"
    ),
    "gateway/engine/pool/engine_choice.py: 20  ->  40": _LENGTH,
    "gateway/engine/slots/swap_plan.py: 4096  ->  8192": _KEPT,
    "gateway/engine/slots/slot_directory.py: 64  ->  128": _BOUND,
    "gateway/engine/slots/slot_directory.py: 8  ->  9": _LENGTH,
    "gateway/engine/wire/adapter.py: 32  ->  64": _LENGTH,
    "gateway/engine/wire/engine_answers.py: 80  ->  160": _LENGTH,
    "gateway/engine/wire/event_stream.py: len(whole) < _ERROR_BODY  ->  len(whole) <= _ERROR_BODY": _BOUND,
    "gateway/engine/wire/engine_answers.py: 100  ->  200": _LENGTH,
    "gateway/engine/wire/vllm_json.py: len(held) > 1  ->  len(held) >= 1": "one event joined is that event",
    "gateway/escape.py: 2000  ->  4000": _LENGTH,
    "gateway/http1/connection.py: 2  ->  3": "no compressed body of two bytes holds anything",
    "gateway/http1/connection.py: len(self._left) < _MAGIC  ->  len(self._left) <= _MAGIC": (
        "no compressed body of two bytes holds anything"
    ),
    "gateway/config/address.py: 200  ->  400": _LENGTH,
    "gateway/observe/audit.py: 200  ->  400": _LENGTH,
    "gateway/observe/audit.py: 4096  ->  8192": _KEPT,
    "gateway/observe/line_log.py: 10000  ->  20000": _BOUND,
    "gateway/observe/metrics.py: if label == map_id:  ->  if False:": _SHORT_CUT,
    "gateway/observe/metrics.py: if len(self._call_series) < SERVERS_BOUND * len(TOOL_OUTCOMES):  ->  if False:": (
        _SHORT_CUT
    ),
    "gateway/observe/metrics.py: len(self._call_series) < SERVERS_BOUND * len(TOOL_OUTCOMES)  ->  "
    "len(self._call_series) <= SERVERS_BOUND * len(TOOL_OUTCOMES)": _KEPT,
    "gateway/observe/metrics.py: SERVERS_BOUND * len(TOOL_OUTCOMES)  ->  SERVERS_BOUND + len(TOOL_OUTCOMES)": _KEPT,
    "gateway/observe/logs.py: 4096  ->  8192": _KEPT,
    "gateway/observe/logs.py: 128  ->  256": _LENGTH,
    "gateway/observe/logs.py: if self._last.get(tool) == kind and (kind, tool, map_id) in self._said:  ->  "
    "if False:": _SHORT_CUT,
    "gateway/observe/tracing.py: 128  ->  256": _LENGTH,
    "gateway/observe/tracing.py: 500  ->  1000": _LENGTH,
    "gateway/observe/trajectories.py: 200  ->  400": _LENGTH,
    "gateway/protocol/lines.py: if not self._length and len(data) <= self._bound and (data[-1:] == b'\\n'):  ->  "
    "if False:": _SHORT_CUT,
    "gateway/protocol/lines.py: len(data) <= self._bound  ->  len(data) < self._bound": _SHORT_CUT,
    "gateway/protocol/lines.py: if not data.partition(b'\\n')[2] and (not data.partition(b'\\r')[1]):  ->  "
    "if False:": _SHORT_CUT,
    "gateway/protocol/messages.py: if type(code) is int and isinstance(message, str):  ->  if False:": _SHORT_CUT,
    "gateway/protocol/messages.py: if not names_no_number(data):  ->  if False:": _SHORT_CUT,
    "gateway/proxy/approvals.py: 10  ->  11": "one invisible character is spelled out as ten, so more are never there",
    "gateway/proxy/approvals.py: 128  ->  256": _LENGTH,
    "gateway/proxy/approvals.py: 200  ->  400": _LENGTH,
    "gateway/proxy/bolt_on/bolt_on_tools.py: 80  ->  160": _LENGTH,
    "gateway/proxy/bolt_on/bolt_on_transport.py: 300  ->  600": _LENGTH,
    "gateway/proxy/transport/http/client.py: now - each.idle_since >= _DRAIN_TIME  ->  "
    "now - each.idle_since > _DRAIN_TIME": "one that has drained for exactly this time is closed a sweep later",
    "gateway/proxy/transport/http/http_transport.py: 128  ->  256": "the same lines, kept or made anew",
    **dict.fromkeys(
        (
            "gateway/proxy/transport/oauth/discovery.py: 200  ->  400",
            "gateway/proxy/transport/oauth/sign_in.py: 16  ->  32",
            "gateway/proxy/transport/oauth/token_endpoint.py: 100  ->  200",
            "gateway/proxy/upstream/items/item_reader.py: 300  ->  600",
            "gateway/proxy/upstream/server_lists.py: 200  ->  400",
        ),
        _LENGTH,
    ),
    "gateway/proxy/transport/oauth/sign_in.py: 300 <= status < 400  ->  300 <= status <= 400": (
        "400 says by itself that the client is not known"
    ),
    "gateway/proxy/transport/stdio/server_process.py: 2  ->  3": "how long a moment is, or one turn of the loop more",
    "gateway/proxy/transport/stdio/server_process.py: self._process is not None and self._pipe is not None  ->  "
    "self._process is not None or self._pipe is not None": "a shell that runs has its pipe",
    "gateway/proxy/upstream/items/item_reader.py: len(self._logged) + len(new) > _REMEMBERED  ->  "
    "len(self._logged) + len(new) >= _REMEMBERED": _KEPT,
    "gateway/proxy/upstream/items/tool_pins.py: size > min(left, _LONGEST)  ->  size >= min(left, _LONGEST)": _KEPT,
    "gateway/deadlines.py: most > seconds  ->  most >= seconds": ("what is left is nothing where both are the same"),
    "gateway/proxy/upstream/session/negotiation.py: 200  ->  400": _LENGTH,
    "gateway/proxy/upstream/session/task_owners.py: 10000  ->  20000": _KEPT,
    "gateway/proxy/upstream/supervision/maintenance.py: anyio.current_time() - began > _LONGEST_PAUSE  ->  "
    "anyio.current_time() - began >= _LONGEST_PAUSE": "a stream that lasted for exactly this time is either way",
    "gateway/replicas/connected.py: 4096  ->  8192": _KEPT,
    "gateway/replicas/link.py: 8  ->  9": _BOUND,
    "gateway/replicas/replica_interface.py: 24  ->  48": _LENGTH,
    "gateway/replicas/sealed_records.py: 2  ->  3": "what is derived beyond both keys is not used",
    "gateway/serve/auth/rate_limiter.py: left < _WHOLE  ->  left <= _WHOLE": _MADE_UP,
    "gateway/serve/auth/rate_limiter.py: left >= _WHOLE  ->  left > _WHOLE": _MADE_UP,
    "gateway/serve/auth/sign_in_pages.py: 300  ->  600": _LENGTH,
    "gateway/serve/mcp/http_session.py: len(messages) > 1  ->  len(messages) >= 1": "one request has no second id",
    "gateway/shared/redis_store.py: 200  ->  400": _LENGTH,
    "gateway/shared/shared_store.py: self._store.back_for < seconds  ->  self._store.back_for <= seconds": _MADE_UP,
    "gateway/shared/shared_store.py: -most <= seconds <= most  ->  -most < seconds <= most": _MADE_UP,
    "gateway/shared/shared_store.py: 8  ->  9": _LENGTH,
    **dict.fromkeys(
        (f"gateway/shared/store_interface.py: {depth}  ->  {2 * depth}" for depth in (1, 20)),
        "a depth without a limit: more than the store follows either way",
    ),
    "gateway/shared/store_records.py: 18  ->  36": _LENGTH,
    "gateway/toolcalls/grammar/exact.py: not _CHOICES.isdisjoint(part)  ->  _CHOICES.isdisjoint(part)": _SHORT_CUT,
    "gateway/toolcalls/schema/merge.py: len(found) > 1  ->  len(found) >= 1": "one schema united is that schema",
    "gateway/toolcalls/schema/schema_check.py: 50000  ->  100000": _BOUND,
    "gateway/toolcalls/schema/schema_check.py: 60  ->  120": _BOUND,
    "gateway/toolcalls/schema/schema_check.py: self._left < 0  ->  self._left <= 0": _BOUND,
    "gateway/workers/handover.py: 4000  ->  8000": _LENGTH,
    "gateway/workers/stdio/shared_process.py: 200  ->  400": _LENGTH,
    "gateway/workers/stdio/switch.py: if (answer := _ANSWER.match(data)) is not None:  ->  if False:": _SHORT_CUT,
}
