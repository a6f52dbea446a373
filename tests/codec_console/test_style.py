"""Colours that can be read, in both themes: WCAG 2.2, 1.4.3, contrast of 4.5 or more."""

import re
from pathlib import Path

import codec_console
from tests.cases import each_of

SHEET = (Path(codec_console.__file__).parent / "static" / "console.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\n *\}", SHEET, re.S)
)
PAIRS = [
    *((text, ground) for text in ("text", "soft", "link") for ground in ("ground", "card", "code-ground")),
    *((word, f"{word}-ground") for word in ("good", "bad", "warn")),
    ("on-accent", "accent"),
    *(("soft", ground) for ground in ("chip-1", "chip-2")),
    *(("text", ground) for ground in ("chip-1", "chip-2", "chip-special", "chip-differs")),
]


def light_of(colour: str) -> float:
    """Relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@each_of(("text", "ground"), PAIRS)
@each_of("theme", [LIGHT, DARK])
def test_text_stands_out_from_its_ground(theme: dict[str, str], text: str, ground: str) -> None:
    low, high = sorted((light_of(theme[text]), light_of(theme[ground])))

    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_both_themes_name_the_same_colours_and_nothing_comes_from_elsewhere() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert re.findall(r"url\(|@import|https?:", SHEET) == []
