"""A real proxy sees a fork; a real Prometheus answers every panel, and the alert arrives at a webhook."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.dashboards.files import RUNBOOKS, dashboard, filled_in, queries
from tests.dashboards.monitoring import Prometheus, Webhook, alertmanager, prometheus, until
from tests.dashboards.tools import program
from tests.forkwatch_process import Counters, Forkwatch
from tests.scenarios.exchange import ScriptedUpstream
from tests.scenarios.frames import event
from tests.scenarios.lab import Lab

pytestmark = [pytest.mark.ops, pytest.mark.asyncio(loop_scope="module")]

VERDICTS = "forkwatch_resume_verdicts_total"
SEEN = {"resumed", "fork", "gap", "refused"}


class Watched(NamedTuple):
    """What the tests here look at, after the resumes happened."""

    prometheus: Prometheus
    webhook: Webhook


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """A proxy under watch whose clients resumed four times: once each as in `SEEN`."""
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name)
    directory = tmp_path_factory.mktemp("monitoring")
    async with contextlib.AsyncExitStack() as stack:
        webhook, webhook_port = await stack.enter_async_context(Webhook.listening())
        upstream = ScriptedUpstream()
        entry = {"name": "tools", "url": f"http://127.0.0.1:{await upstream.start()}"}
        stack.callback(upstream.server.close)
        proxy = Forkwatch([entry], directory, metrics={"exemplars": True}).start()
        stack.callback(proxy.stop)
        alertmanager_port = await stack.enter_async_context(alertmanager(directory, webhook_port))
        found = await stack.enter_async_context(prometheus(directory, proxy.status_port, alertmanager_port))
        # A counter is seen to grow only from a first scrape on.
        scraped = 'count_over_time(forkwatch_resume_verdicts_total{reason="log_restarted"}[1m]) >= 2'
        await found.answered(scraped)
        await resume_in_every_way(proxy, upstream)
        await found.answered(f"count({VERDICTS} > 0) >= {len(SEEN)}")
        yield Watched(found, webhook)


async def resume_in_every_way(proxy: Forkwatch, upstream: ScriptedUpstream) -> None:
    """One resume is honest, one forks, one loses events, and one is refused."""
    lab = Lab(proxy, upstream, await Counters.since_now(proxy))
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 8)))
    await (await lab.resume("5", event(6), event(7))).abort()
    await (await lab.resume("7", event(1, "e2-1"), event(2, "e2-2"))).abort()
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 8)))
    await (await lab.resume("5", event(1001), event(1002))).abort()
    await (await lab.get("1002")).answer(404, [("Content-Type", "text/plain")], b"no such session")
    verdicts = await lab.counters.settled()
    assert {verdict for verdict, _, _ in verdicts} == SEEN
    await lab.close()


async def test_every_panel_is_answered(watched: Watched) -> None:
    """Each query of the dashboard is valid and finds series."""
    for query in queries():
        if query.panel == "Restarts":  # there was none
            assert await watched.prometheus.query(query.expression) == []
        else:
            assert await watched.prometheus.answered(query.expression), query.panel


async def test_the_first_row_says_what_happened(watched: Watched) -> None:
    """One fork and lost events in the last hour, two broken resumes of three, and nothing down."""
    asked = {query.panel: query.expression for query in queries()}
    shown = {}
    for panel in ("Forks, 1 h", "Events lost, 1 h", "Resumes that went on, 1 h", "Proxies down"):
        ((_, shown[panel]),) = await watched.prometheus.answered(asked[panel])
    assert shown["Forks, 1 h"] > 0.9
    assert shown["Events lost, 1 h"] > 0.9
    assert shown["Resumes that went on, 1 h"] == pytest.approx(1 / 3, abs=0.01)
    assert shown["Proxies down"] == 0


async def test_the_variables_find_their_values(watched: Watched) -> None:
    """What label_values() asks for is there, and the upstream is the one that was configured."""
    values = {}
    for variable in dashboard()["templating"]["list"][1:]:
        series, _, label = (
            variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rpartition(",")
        )
        parameters = {"match[]": filled_in(series)}
        values[variable["name"]] = await watched.prometheus.api(f"label/{label.strip()}/values", **parameters)
    assert values["job"] == ["forkwatch"]
    assert values["upstream"] == ["tools"]
    assert len(values["instance"]) == 1


async def test_a_verdict_leads_to_its_session(watched: Watched) -> None:
    """The exemplars of the verdicts, which the panel shows as dots, name sessions."""
    now = time.time()

    async def exemplars() -> list[str]:
        parameters = {"query": VERDICTS, "start": str(now - 120), "end": str(now + 120)}
        found = await watched.prometheus.api("query_exemplars", **parameters)
        return [exemplar["labels"]["session"] for series in found for exemplar in series["exemplars"]]

    assert all(await until(exemplars, bool, "an exemplar"))


async def test_a_fork_arrives_at_the_webhook(watched: Watched) -> None:
    """Proxy, scrape, rule, Alertmanager, ticket; and its runbook opens from the address in the alert."""
    name = "ForkwatchForkDetected"
    await until(lambda: watched.webhook.names("/ticket"), lambda names: name in names, "the alert")
    (alert,) = [one for _, one in watched.webhook.arrived if one["labels"]["alertname"] == name][:1]
    assert alert["labels"]["upstream"] == "tools"
    assert alert["labels"]["reason"] in {"log_restarted", "id_regressed"}
    assert alert["annotations"]["summary"] == f"A stream of tools forked: {alert['labels']['reason']}"
    page = alert["annotations"]["runbook_url"].removeprefix(watched.prometheus.url)
    assert await watched.prometheus.fetch(page) == (RUNBOOKS / f"{name}.md").read_bytes()
    assert await watched.webhook.names("/page") == []
