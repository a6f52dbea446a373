"""`codec-gateway token`: the token that clients must send when the gateway listens beyond loopback.

Prints the configured token (CODEC_GATEWAY_TOKEN, `serve.token`), read as `serve` reads it, or else the one in the state
folder, which is made if there is none yet. It decides nothing: `gateway.config` reads the setting,
`gateway.serve.auth.gateway_token` keeps the token.
"""

from pathlib import Path
from typing import Annotated

import typer

from gateway.config.load import load_config
from gateway.serve.auth.gateway_token import stored_token


def token(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here, if there is one)."
        ),
    ] = None,
) -> None:
    """Print the bearer token of this gateway (and make one, if there is none yet).

    Example: curl -H "Authorization: Bearer $(codec-gateway token)" http://HOST:8600/v1/models
    """
    typer.echo(load_config(config).serve.token or stored_token())
