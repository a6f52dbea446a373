"""The frame of a picture of bars: its parts to the text of an SVG that is readable in light and dark. Pure."""

from collections.abc import Iterable


def framed(width: int, height: int, title: str, body: Iterable[str], bold: str = "title") -> str:
    """Return the SVG: the title on top, then the body. `bold`: the class of words in bold, of which the title is."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            f"<style>text{{font:13px sans-serif;fill:#444}}.{bold}{{font-weight:bold}}"
            "@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>",
            f'<text x="8" y="22" class="{bold}">{title}</text>',
            *body,
            "</svg>",
            "",
        ]
    )
