"""The console: what it shows, and the secret that lets an operator in."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.section import Section

SHORTEST: Final = 32
"""Characters that a token needs so that nobody can guess it, even from a URL that was signed with it."""
VARIABLE: Final = "CODEC_ADMIN_TOKEN"


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """The pages under `/console` of the admin port."""

    texts: Literal["off", "on"] = "off"
    """Whether the texts of conversations are shown; if not, only ids, counts and sources are."""
    token: str | None = None
    """Lets its holder sign in; None: the one in the state folder."""


CONSOLE: Final = ConsoleConfig()


class ConsoleSection(Section):
    """`[console]`: the pages under `/console` of the admin port ([how](console.md))."""

    texts: Literal["off", "on"] = Field(
        default=CONSOLE.texts,
        description="`off`: the console shows ids, counts and sources of conversations, but none of their text. "
        "`on`: it shows their text too, with secrets masked; only for a machine on which everybody "
        "who signs in may read what all callers say.",
    )
    token: Annotated[str, Field(min_length=SHORTEST)] | None = Field(
        default=CONSOLE.token,
        description="Secret with which the operator signs in, at least 32 characters. Best set as "
        "CODEC_ADMIN_TOKEN; unset: one in the state folder, which `codec-gateway console` uses.",
    )
