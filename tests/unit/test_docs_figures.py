"""The pictures of the documents: what they show is in the tables, and can be seen on any page."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import figures
from support.documents import REPO

#: The background of the site's pages, light and dark.
PAGES = ("#ffffff", "#1e2129")
SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> ElementTree.Element:
    draw, page = figures.PICTURES[name]
    return ElementTree.fromstring(draw(page))


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", figures.PICTURES)
def test_colours_can_be_told_from_either_page(name: str) -> None:
    svg = ElementTree.tostring(drawn(name), encoding="unicode")
    colours = set(re.findall(r"#[0-9a-f]{6}\b", svg))
    assert colours
    for colour in colours:
        for page in PAGES:
            dark, light = sorted((luminance(colour), luminance(page)))
            assert (light + 0.05) / (dark + 0.05) >= 3, f"{colour} on {page}"


@pytest.mark.parametrize("name", figures.PICTURES)
def test_pictures_are_whole_and_the_same_each_time(name: str) -> None:
    draw, page = figures.PICTURES[name]
    assert draw(page) == draw(page)
    assert "\n" not in draw(page)  # Markdown would end it at a blank line
    _, _, width, height = map(float, drawn(name).attrib["viewBox"].split())
    for text in drawn(name).iter(f"{SVG}text"):
        words, x = str(text.text), float(text.attrib["x"])
        room = {"start": width - x, "end": x, "middle": 2 * min(x, width - x)}
        assert 7.7 * len(words) <= room[text.attrib["text-anchor"]], words
        assert 0 < float(text.attrib["y"]) < height


def test_each_row_of_the_table_is_drawn() -> None:
    rows = figures.table("2026-11-24-bench.md", "ddl-topology")
    svg = drawn("between-hosts")
    names = [str(text.text) for text in svg.iter(f"{SVG}text")]
    assert sum(", " in name for name in names) == len(rows)
    # The legend's, and one of ddl for each row.
    diamonds = [path for path in svg.iter(f"{SVG}path") if path.attrib["d"].endswith("7z")]
    assert len(diamonds) == len(rows) + 1


def test_labels_do_not_cover_each_other() -> None:
    places = figures.spread({"a": 10, "b": 12, "c": 100, "d": 11}, 17)
    assert places == {"a": 10, "d": 27, "b": 44, "c": 100}
    for one, two in pairwise(sorted(places.values())):
        assert two - one >= 17


def test_a_table_is_found_by_a_column() -> None:
    row = figures.table("2026-11-24-bench.md", "oneccl")[0]
    assert (row["size"], row["ddl"], figures.number(row["ddl"])) == ("4 B", "0.168", 0.168)
    assert figures.number("–") is None
    with pytest.raises(ValueError, match=r"bench\.md has no table with the column 'none'"):
        figures.table("2026-11-24-bench.md", "none")


def test_pages_name_pictures_that_are_there() -> None:
    page = (REPO / "docs" / "performance.md").read_text()
    shown = figures.with_pictures(page)
    assert shown.count("<figure><svg") == page.count("<!-- picture:") == len(figures.PICTURES)
    with pytest.raises(ValueError, match="there is no picture 'two'; there are: one-host"):
        figures.with_pictures("<!-- picture: two -->")
