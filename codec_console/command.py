"""`codec-gateway console`: an address by which a person signs in to the console of a running gateway, once.

Signs the address with the operator's token, which the gateway knows as well; the token itself is never sent. It decides
nothing: `codec_console.sign_in` does.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from codec_console.keys import make_key
from codec_console.mount import operator_token, sign_in_url
from gateway.cli.probe import url_of
from gateway.cli.status import AdminPort, ConfigOfServe, ask_admin, not_a_gateway, refusal_of
from gateway.config.address import is_http_url
from gateway.config.load import load_config
from gateway.errors import ConfigError, UpstreamUnavailable

_TITLE: Final = "· codec-gateway</title>"


def console(admin: AdminPort = None, config: ConfigOfServe = None) -> None:
    """Print an address that signs you in to the console of a running gateway. It works once, within ten minutes.

    Exit code 0: it was printed; 3: the operator's token can't be used; 4: no console answers.

    Example: codec-gateway console
    """
    typer.echo(console_url(admin, config))


def console_url(admin: str | None, config: Path | None) -> str:
    """Make the address. Raises `ConfigError` and `UpstreamUnavailable`."""
    settings = load_config(config)
    address = admin or url_of(settings.serve.admin_host, settings.serve.admin_port)
    if not is_http_url(address):
        raise ConfigError(f"--admin {address!r}: expected the admin port's address, such as http://127.0.0.1:8601")
    _must_answer(address)
    return sign_in_url(address, make_key(operator_token(settings), datetime.now(UTC).timestamp()))


def _must_answer(address: str) -> None:
    answer = ask_admin(address, "/console/sign-in")
    reason = refusal_of(*answer)
    if answer.status != 200 and reason:
        raise UpstreamUnavailable(f"{address!r} shows no console: {reason}", server="")
    if answer.status != 200 or _TITLE.encode() not in answer.body:
        raise not_a_gateway(address, answer.status)
