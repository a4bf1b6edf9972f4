"""The page's file as it is served: small, whole, and nothing that its content security policy would refuse."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from tests.page.fixture_api import PAGE

MOST_BYTES = 60_000


class Markup(HTMLParser):
    """Every tag and attribute of the file's own markup."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.tags.append(tag)
        self.attributes += attrs


def test_it_is_small() -> None:
    """The whole page costs one small answer."""
    assert len(PAGE.read_bytes()) <= MOST_BYTES


def test_one_style_and_one_script() -> None:
    """The server hashes exactly one inline element of each kind."""
    tags = Markup(PAGE.read_text()).tags
    assert (tags.count("style"), tags.count("script"), tags.count("base")) == (1, 1, 0)
    assert len(re.findall("<style>", PAGE.read_text())) == len(re.findall("<script>", PAGE.read_text())) == 1


def test_no_attribute_that_the_policy_refuses() -> None:
    """No inline handler, no style attribute, nothing loaded from anywhere."""
    attributes = Markup(PAGE.read_text()).attributes
    loaded = {value for name, value in attributes if name in ("src", "href", "action") and value}
    assert [name for name, _ in attributes if name.startswith("on") or name == "style"] == []
    assert {value for value in loaded if not value.startswith(("#/", "data:"))} == set()


def test_data_never_enters_as_markup() -> None:
    """Nothing that parses a string into elements or code is used, and nothing is stored."""
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|Storage\b"
    )
    assert re.findall(forbidden, PAGE.read_text()) == []


def test_nothing_moves() -> None:
    """No animation and no transition, so that there is none to reduce."""
    assert re.findall(r"animation|transition|@keyframes|smooth", PAGE.read_text()) == []
