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

    texts: Literal["auto", "off", "on"] = "auto"
    """Whether the text of conversations is shown; if not, only counts and sources are."""
    token: str | None = None
    """Lets its holder sign in; None: the one in the state folder."""


CONSOLE: Final = ConsoleConfig()


class ConsoleSection(Section):
    """`[console]`: the pages under `/console` of the admin port ([how](console.md))."""

    texts: Literal["auto", "off", "on"] = Field(
        default=CONSOLE.texts,
        description="`on`: the console shows the text of all callers' conversations, with secrets masked, to everybody "
        "who signs in. `off`: it shows counts and sources only, no text and no token ids, since ids are text: anybody "
        "with the tokenizer can decode them. `auto`: each person who signs in can switch, for their own session; text "
        "is shown at first if the admin port is on loopback, no proxy stands between, and there are no API keys and no "
        "OAuth issuer.",
    )
    token: Annotated[str, Field(min_length=SHORTEST)] | None = Field(
        default=CONSOLE.token,
        description="Secret with which the operator signs in, at least 32 characters. Best set as "
        "CODEC_ADMIN_TOKEN; unset: one in the state folder, which `codec-gateway console` uses.",
    )
