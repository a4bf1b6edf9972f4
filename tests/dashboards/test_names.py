"""Nothing in dashboards/ names a series, a label or a value that a real exposition does not have."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.config.settings import Limits
from proxy.metrics import Metrics
from tests.dashboards import promql
from tests.dashboards.files import RUNBOOKS, alerts, queries, recordings, thresholds

SCRAPED = {"job", "instance", "pod"}
"""Labels that Prometheus adds to what it scrapes."""
OF_PROMETHEUS = {"up", "ALERTS"}
"""Series that Prometheus makes itself."""

Children = dict[str, list[dict[str, str]]]

EXPRESSIONS = {
    **{f"alert {name}": rule["expr"] for name, rule in alerts().items()},
    **{f"record {name}": expression for name, expression in recordings().items()},
    **{f"panel {n}: {query.panel}": query.expression for n, query in enumerate(queries())},
    **{
        f"runbook {path.stem} {n}": expression
        for path in sorted(RUNBOOKS.glob("*.md"))
        for n, expression in enumerate(re.findall(r"^promtool query .*?'([^\n]*)'$", path.read_text(), re.M))
    },
}
each = pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)


@pytest.fixture(scope="module")
def exposed() -> Children:
    """The labels of all samples of a proxy with one upstream, by the name of the series."""
    limits = {field.name: 1.0 for field in fields(Limits)}
    metrics = Metrics([("tools", "observe")], version="1", limits=limits)
    metrics.upstream("tools").count_request("GET", 404)
    children: Children = {}
    for family in text_string_to_metric_families(metrics.render(None, [])[0].decode()):
        for sample in family.samples:
            children.setdefault(sample.name, []).append(sample.labels)
    return children


@each
def test_every_series_exists(expression: str, exposed: Children) -> None:
    """A name is of the exposition, recorded here, or Prometheus' own."""
    known = {*exposed, *recordings(), "forkwatch:threshold", *OF_PROMETHEUS}
    named = promql.series(expression)
    assert named
    assert named <= known


@each
def test_every_selected_label_has_the_value(expression: str, exposed: Children) -> None:
    """A condition on a label of ours holds for a child that exists, each alternative of a regex for one."""
    for series, label, operator, value in promql.matchers(expression):
        if series in OF_PROMETHEUS or label in SCRAPED or value == ".+":
            continue
        if series == "forkwatch:threshold":
            assert (label, operator) == ("name", "=")
            assert value in thresholds()
            continue
        values = {child.get(label) for child in exposed[series]}
        assert operator in ("=", "=~"), "a negative condition hides a misspelling"
        assert set(value.split("|") if operator == "=~" else [value]) <= values, f"{series}.{label}"


@each
def test_every_grouping_label_exists(expression: str, exposed: Children) -> None:
    """What an expression groups by is a label of a series in it or in what it was recorded from."""
    sources = promql.series(expression)
    while recorded := sources & {*recordings()}:
        sources = (sources - recorded).union(*(promql.series(recordings()[name]) for name in recorded))
    labels = {label for name in sources for child in exposed.get(name, []) for label in child}
    assert promql.grouping_labels(expression) <= labels | SCRAPED


def test_every_threshold_is_used() -> None:
    """A threshold that no alert compares with would be changed in vain."""
    used = {
        matcher.value
        for rule in alerts().values()
        for matcher in promql.matchers(rule["expr"])
        if matcher.series == "forkwatch:threshold"
    }
    assert used == {*thresholds()}


@pytest.mark.parametrize(
    ("expression", "series", "labels"),
    [
        ("up == 0", {"up"}, set()),
        (
            'sum by (a, b) (rate(x_total{c=~"d|e"}[5m])) / on (f) group_left () y > 0.9',
            {"x_total", "y"},
            {"a", "b", "f"},
        ),
        ('a:b:c5m >= scalar(t:u{name="n"}) and on () z', {"a:b:c5m", "t:u", "z"}, set()),
        ("histogram_quantile(0.99, sum without (x) (rate(l_bucket[10s]))) or vector(0)", {"l_bucket"}, {"x"}),
    ],
)
def test_the_reader_of_expressions(expression: str, series: set[str], labels: set[str]) -> None:
    """Names are told from functions, keywords, labels, numbers and durations."""
    assert promql.series(expression) == series
    assert promql.grouping_labels(expression) == labels
