"""Where the gateway keeps what it learns: the user's state folder (XDG_STATE_HOME). Nothing there is configuration."""

from pathlib import Path

from platformdirs import user_state_path


def state_folder() -> Path:
    """`codec-gateway` in the user's state folder; it may not exist yet."""
    return user_state_path("codec-gateway")
