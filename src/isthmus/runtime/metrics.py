"""What happens on each link, as plain numbers, and their export to Prometheus where somebody wants it.

The links count; nobody is called. Whoever wants to know reads the numbers, or registers `collector` with
prometheus-client (extra `metrics`), which reads them when it is scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.ids import SECOND, LinkId, Nanos

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


@dataclass(slots=True)
class LinkMetrics:
    """One link since its gateway started. Frames are data frames, bytes are all that went over its connections."""

    link: LinkId
    near: str
    far: str
    frames_out: int = 0
    frames_in: int = 0
    frames_again: int = 0
    """Written more than once, because a connection broke."""
    bytes_out: int = 0
    bytes_in: int = 0
    dropped: int = 0
    """Frames for a far end that was not there yet, or kept for one that was replaced by a new process."""
    connections: int = 0
    ups: int = 0
    downs: int = 0
    up: bool = False
    changed_at: Nanos = 0
    """When it last went up or down, by the monotonic clock."""
    kept_frames: int = 0
    """Frames that are kept because the far end has not acknowledged them."""
    kept_bytes: int = 0
    under_way: int = 0
    """Bytes accepted and not yet reported by the far end."""
    window: int = 0
    round_trip: Nanos = 0
    """Time that the latest ping took, there and back."""
    queued: Nanos = 0
    """How long it waited on the way there behind other bytes, anywhere."""
    rate: float = 0.0
    """Bytes per second that the line was seen to carry at best, lately."""

    @property
    def reconnects(self) -> int:
        return max(0, self.connections - 1)


_COUNTERS = {
    "frames_out": "Data frames written, those written again included.",
    "frames_in": "Data frames received.",
    "frames_again": "Data frames written more than once because a connection broke.",
    "bytes_out": "Bytes written.",
    "bytes_in": "Bytes read.",
    "dropped": "Data frames without a far end to go to.",
    "connections": "Connections that were opened.",
    "ups": "How often the link came up.",
    "downs": "How often the link went down.",
}
_GAUGES = {
    "up": "1 while the link is up.",
    "kept_frames": "Data frames that the far end has not acknowledged.",
    "kept_bytes": "Their bytes.",
    "under_way": "Bytes that the far end has not reported yet.",
    "window": "Bytes that may be under way while the link counts as ready.",
    "round_trip": "Seconds from the latest ping to its answer.",
    "queued": "Seconds that the latest ping waited on the way there.",
    "rate": "Bytes per second that the line was seen to carry at best, lately.",
}
_IN_SECONDS = {"round_trip", "queued"}


def collector(read: Callable[[], Iterable[LinkMetrics]]) -> Collector:
    """A collector for prometheus-client: `REGISTRY.register(collector(lambda: links.metrics()))`.

    Names are `isthmus_link_*`; labels are the link's id and its two ends. Needs the extra `metrics`.
    """
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    class LinkCollector(Collector):  # type: ignore[misc, unused-ignore] # the package is optional, and then has no type
        def collect(self) -> Iterator[Any]:
            links = list(read())
            for name, text in (_COUNTERS | _GAUGES).items():
                make = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
                unit = "_seconds" if name in _IN_SECONDS else ""
                family = make(f"isthmus_link_{name}{unit}", text, labels=("link", "near", "far"))
                for link in links:
                    value = getattr(link, name) / (SECOND if unit else 1)
                    family.add_metric((str(link.link), link.near, link.far), value)
                yield family

    return LinkCollector()
