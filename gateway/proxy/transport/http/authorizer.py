"""The source of credentials that change over time, for one HTTP server.

Only a Protocol: `proxy/transport/oauth/client_credentials.py` and `proxy/transport/oauth/signed_in.py` implement it,
`channel.py` uses it. Credentials that never change are in the configuration's `headers` and don't need it.
"""

from collections.abc import Mapping
from typing import Protocol


class Authorizer(Protocol):
    """The credentials for one server."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the credentials; empty while there are none.

        Raises:
            NoAnswer: they can't be obtained; the message says why.
        """
        ...

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        """Return whether there are better ones than those `sent`, after the server answered 401 or 403. Raises as
        `headers` does."""
        ...
