"""`codec-leaf precache`: a bolt-on's texts and a list of maps to its manifest and caches, with a progress bar.

Prints, and decides nothing: `leaf.bolt_on` proves every seam, and refuses with a text that shows why. Everything is
proven before the first file is written. The bar is shown only on a terminal, on stderr.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from leaf_sdk.leaf.bolt_on import Manifest, load_manifest, moved_seams
from leaf_sdk.leaf.bolt_on.precaching import Seam
from leaf_sdk.leaf.bolt_on.source import Build, ModelMap, build_tool, texts_of, write_build

from .targets import is_manifest, model_of, tools_of


@dataclass(frozen=True, slots=True)
class _Tool:
    manifest: Manifest
    texts: Mapping[str, str]
    folder: Path


def precache(
    target: Annotated[
        str, typer.Argument(help="A package with TOOLS, or package:NAME, or a manifest's file or folder.")
    ],
    maps: Annotated[
        list[str],
        typer.Option("--map", "-m", help="A map, a model's file or an address, as [MODEL=]SOURCE; repeatable."),
    ],
) -> None:
    """Build a bolt-on's caches for some maps, and the manifest that lists them.

    Example: codec-leaf precache my_tool --map org/model=model.gguf
    """
    tools = _tools(target)
    seams: list[tuple[str, str, Seam]] = []
    with _progress() as progress:
        step = progress.add_task("opening maps", total=len(maps) + len(tools) * len(maps))
        models: list[ModelMap] = []
        for each in maps:
            progress.update(step, description=f"opening {Path(each).name}")
            models.append(model_of(each))
            progress.advance(step)
        builds: list[Build] = []
        for tool in tools:
            progress.update(step, description=f"tokenizing {tool.manifest.name}")
            builds.append(build_tool(tool.manifest, tool.texts, models))
            for model in models:
                seams += [
                    (tool.manifest.name, model.model_id, each) for each in moved_seams(tool.texts, model.token_map)
                ]
                progress.advance(step)
    for tool, build in zip(tools, builds, strict=True):
        for path in write_build(build, tool.folder):
            typer.echo(_shown(path))
        for model_id in build.dropped:
            typer.echo(
                f"{tool.manifest.name}: dropped {model_id} from the manifest, because its cached ids are of other "
                "texts; to keep it, give its map as well",
                err=True,
            )
    for name, model_id, seam in seams:
        typer.echo(_sentence(name, model_id, seam), err=True)


def _tools(target: str) -> list[_Tool]:
    if is_manifest(target):
        manifest = load_manifest(target)
        return [_Tool(manifest, texts_of(manifest), manifest.folder or Path())]
    return [_Tool(source.manifest(), source.texts, source.folder) for source in tools_of(target)]


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _sentence(name: str, model_id: str, seam: Seam) -> str:
    """Say which seam was moved, with a text whose ids in parts, cut at the slot's ends, are not those of the whole."""
    return (
        f"{name}: {model_id}: the seam at {{{seam.slot}}} of fragment {seam.fragment!r} was moved, because "
        f"{seam.example!r} is {len(seam.whole)} ids as a whole and {len(seam.apart)} in parts"
    )
