"""`--preset`: a scene of the Codec reference in place of the options that say what is asked.

Turns a name into the scene, and the bounds of a run into the scene's own unless options set others.
"""

from typing import Final

from typer import Context

from codec_bench.presets import PRESETS, Scene
from gateway.errors import ConfigError

_DECIDED: Final = ("prompt_tokens", "answer_tokens", "turns", "tools", "trace", "api", "whole", "rate")
"""Options that a preset replaces."""


def scene_of(name: str, seed: int, context: Context) -> Scene:
    """The scene with this name. Raises `ConfigError` if there is none, or if an option is given that it replaces."""
    if name not in PRESETS:
        raise ConfigError(f"--preset: {name[:80]!r} is unknown: expected one of {', '.join(PRESETS)}")
    if given := [option for option in _DECIDED if _is_given(option, context)]:
        option = given[0].replace("_", "-")
        raise ConfigError(f"--preset and --{option} exclude each other: a preset says what is asked, and how")
    return Scene(name, seed)


def bounds_of(
    scene: Scene, requests: int, seconds: float, timeout: float, context: Context
) -> tuple[int, float, float]:
    """Requests, seconds and the time of one request: the scene's own, except for those given as options."""
    return (
        requests if _is_given("requests", context) else scene.preset.requests,
        seconds if _is_given("seconds", context) else scene.preset.seconds,
        timeout if _is_given("timeout", context) else scene.preset.timeout,
    )


def _is_given(option: str, context: Context) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"
