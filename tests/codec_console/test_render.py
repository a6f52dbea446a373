"""Whatever a template shows is text: for HTML, and for the eyes of who reads it."""

import time
from datetime import UTC, datetime

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from codec_console import render
from codec_console.render import PreparedText, Renderer, lines, show_count, show_seconds, show_time

HOSTILE = "</title><script>alert(1)</script>\x1b[31m\u202e\u2028\x00\ud800&amp;" + "A" * 1_000_000


@pytest.fixture
def renderer(tmp_path, monkeypatch) -> Renderer:
    (tmp_path / "templates").mkdir()
    monkeypatch.setattr(render, "_FOLDER", tmp_path)
    return Renderer()


def shown(renderer: Renderer, tmp_path, template: str, **values: object) -> str:
    (tmp_path / "templates" / "page.html").write_text(template)
    return bytes(renderer.page("page.html", values).body).decode()


def test_text_is_escaped_made_visible_and_cut_without_being_asked(renderer, tmp_path) -> None:
    page = shown(renderer, tmp_path, '<p title="{{ text }}">{{ text }}</p>', text=HOSTILE)

    assert len(page) < 6000
    assert page.count("&lt;/title&gt;&lt;script&gt;") == 2
    assert "<script" not in page
    assert "\\x1b[31m\\u202e\\u2028\\x00\\ud800&amp;amp;AAA" in page
    assert "more characters)" in page


def test_quotes_can_not_end_an_attribute(renderer, tmp_path) -> None:
    assert shown(renderer, tmp_path, '<p title="{{ x }}">', x="\" onload='") == '<p title="&#34; onload=&#39;">'


def test_fit_text_keeps_its_lines_and_is_escaped_all_the_same(renderer, tmp_path) -> None:
    assert shown(renderer, tmp_path, "{{ x }}", x=PreparedText("<a>\n\tb")) == "&lt;a&gt;\n\tb"
    assert shown(renderer, tmp_path, "{{ x }}", x=Markup("<b>")) == "<b>"


def test_value_that_is_missing_fails(renderer, tmp_path) -> None:
    with pytest.raises(UndefinedError):
        shown(renderer, tmp_path, "{{ nothing }}")


def test_lines_are_kept_and_secrets_and_control_characters_are_not() -> None:
    assert lines("a\nb\x1b\r\u202e tok-1234", ["tok-1234"]) == "a\nb\\x1b\\r\\u202e ****"
    assert lines("x" * 70_000).endswith("… (4464 more characters)")
    assert lines("tok-1234", ["tok-1234"], limit=4) == "****"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0004, "0.4 ms"), (0.012, "12 ms"), (0.9994, "999 ms"), (3.14, "3.1 s")]
)
def test_times_are_read_at_a_glance(seconds: float, words: str) -> None:
    assert show_seconds(seconds) == words


def test_numbers_are_grouped() -> None:
    assert show_count(1234567) == "1,234,567"


@pytest.mark.parametrize(
    ("zone", "words"), [("UTC", "3 Nov 2026, 02:03:04 UTC"), ("CET-1", "3 Nov 2026, 03:03:04 CET")]
)
def test_times_have_a_date_and_the_zone_of_the_machine(monkeypatch, zone: str, words: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert show_time(datetime(2026, 11, 3, 2, 3, 4, tzinfo=UTC)) == words
    finally:
        monkeypatch.undo()
        time.tzset()
