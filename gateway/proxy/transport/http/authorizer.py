"""Where the credentials for an HTTP server come from that change in the course of time.

A Protocol only: `proxy/transport/oauth/client_credentials.py` implements it, `channel.py` uses it. What never changes
stands in the configuration's `headers` and needs none of this.
"""

from collections.abc import Mapping
from typing import Protocol


class Authorizer(Protocol):
    """The credentials for one server."""

    async def headers(self) -> Mapping[str, str]:
        """The headers that carry them; empty where there are none yet.

        Raises:
            NoAnswer: they can't be had; the sentence says why.
        """
        ...

    async def refused(self, status: int, www_authenticate: str) -> bool:
        """The server answered 401 or 403 to the last ones. Whether there are better ones now. Raises as `headers`."""
        ...
