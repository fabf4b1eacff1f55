"""What links count, and how it is exported."""

from __future__ import annotations

from dataclasses import fields

import pytest
from link_support import MADRID_SLOT, VALENCIA_SLOT, block, pair
from runtime_support import run_test, until

from isthmus.runtime.metrics import LinkMetrics, collector

registry = pytest.importorskip("prometheus_client.registry")
exposition = pytest.importorskip("prometheus_client.exposition")


def test_a_link_counts_what_goes_over_it() -> None:
    async def scenario() -> None:
        async with pair() as (madrid, valencia):
            for number in range(1, 6):
                madrid.link.send(block(number))
            await until(lambda: not madrid.link.metrics.kept_frames)
            sent, received = madrid.links.metrics()[0], valencia.links.metrics()[0]
            assert (sent.frames_out, received.frames_in, sent.frames_again, sent.dropped) == (5, 5, 0, 0)
            assert (sent.connections, sent.reconnects, sent.ups, sent.downs, sent.up) == (1, 0, 1, 0, True)
            assert sent.bytes_out >= 5 * 100
            assert sent.bytes_out >= received.bytes_in > 5 * 100
            assert (sent.near, sent.far) == ("madrid/g1", "valencia/g1")
            await until(lambda: madrid.link.metrics.round_trip > 0)
            assert (madrid.link.peer, valencia.link.peer) == (VALENCIA_SLOT, MADRID_SLOT)

    run_test(scenario())


def test_prometheus_reads_everything_when_it_is_scraped() -> None:
    links = [LinkMetrics(3, "madrid/g1", "valencia/g2", frames_out=17, round_trip=50_000_000, up=True)]
    prometheus = registry.CollectorRegistry()
    prometheus.register(collector(lambda: links))
    text = exposition.generate_latest(prometheus).decode()
    labels = '{far="valencia/g2",link="3",near="madrid/g1"}'
    assert f"isthmus_link_frames_out_total{labels} 17.0" in text
    assert f"isthmus_link_round_trip_seconds{labels} 0.05" in text
    assert f"isthmus_link_up{labels} 1.0" in text
    links[0].frames_out = 18
    assert f"isthmus_link_frames_out_total{labels} 18.0" in exposition.generate_latest(prometheus).decode()
    for field in fields(LinkMetrics):
        if field.name not in ("link", "near", "far", "changed_at"):
            assert f"isthmus_link_{field.name}" in text
