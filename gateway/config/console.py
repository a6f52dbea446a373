"""The console: what it shows, and the secret that lets an operator in."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.section import Section

SHORTEST: Final = 32
"""Characters of a token that nobody finds by trying, be it with a URL signed by it at hand."""
VARIABLE: Final = "CODEC_ADMIN_TOKEN"


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """The pages under `/console` of the admin port."""

    texts: Literal["off", "on"] = "off"
    """Whether words of conversations are shown; else ids, counts and sources alone."""
    token: str | None = None
    """Lets its holder sign in; None: the one in the state folder."""


CONSOLE: Final = ConsoleConfig()


class ConsoleSection(Section):
    """`[console]`: the pages under `/console` of the admin port ([how](console.md))."""

    texts: Literal["off", "on"] = Field(
        default=CONSOLE.texts,
        description="`off`: ids, counts and sources of conversations, and no word of them. `on`: their texts too, "
        "secrets masked: for a machine on which all who sign in may read what all callers say.",
    )
    token: Annotated[str, Field(min_length=SHORTEST)] | None = Field(
        default=CONSOLE.token,
        description="Lets its holder sign in: 32 characters or more. Best set as CODEC_ADMIN_TOKEN; unset: one in the "
        "state folder, which `codec-gateway console` uses.",
    )
