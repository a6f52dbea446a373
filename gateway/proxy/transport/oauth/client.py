"""The gateway as a client of one authorization server: its id, its secret if it has one, and how it proves it.

Turns them into the header or the fields of a form (RFC 6749, 2.3.1). Pure.
"""

from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import quote_plus

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post"]


@dataclass(frozen=True, slots=True)
class Client:
    """A client's id and how it authenticates."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: AuthMethod = "none"
    redirect_uri: str = ""
    """What it was registered with; empty: it was not registered by the gateway."""

    def forgotten(self) -> "Client":
        """The client after its authorization server forgot it: the next sign-in registers another."""
        return replace(self, redirect_uri="")

    def authentication(self) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the fields of a form that say who asks."""
        if self.secret is None or self.method == "none":
            return {}, {"client_id": self.id}
        if self.method == "client_secret_post":
            return {}, {"client_id": self.id, "client_secret": self.secret}
        pair = f"{quote_plus(self.id)}:{quote_plus(self.secret)}"
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}, {}
