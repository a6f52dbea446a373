"""Mutants that do what the module does, so that no test can notice them, and why.

Each is named by its module and by what it says; where a module has two that say the same, both are meant. `run` leaves
them out, and `test_operators` holds that each is still one of its module's mutants.
"""

from typing import Final

_MADE_UP = "equal only for a sum that no clock gives: the bound lies a millionth beside the numbers that mean something"

EQUIVALENT: Final = {
    "gateway/agent/calls/runner.py: 0 < unread <= _UNREAD  ->  0 <= unread <= _UNREAD": (
        "the same text, made now or when read"
    ),
    "gateway/agent/generate/end_hold.py: if not self._held and ids[-1] not in self._specials:  ->  if False:": (
        "a short cut"
    ),
    "gateway/engine/wire/vllm_json.py: len(held) > 1  ->  len(held) >= 1": "one event joined is that event",
    "gateway/http1/decoding.py: 2  ->  3": "no compressed body of two bytes holds anything; and the unit in a message",
    "gateway/serve/auth/rate_limiter.py: left < _WHOLE  ->  left <= _WHOLE": _MADE_UP,
    "gateway/serve/auth/rate_limiter.py: left >= _WHOLE  ->  left > _WHOLE": _MADE_UP,
}
