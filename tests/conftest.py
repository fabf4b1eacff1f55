"""What all tests share: the flag that rewrites transcripts, and how Hypothesis works here."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# No deadline and no complaint about slowness: the machine may be busy, and time is nowhere a property under test.
settings.register_profile("isthmus", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# `pytest --hypothesis-profile soak`: the same tests, on many more examples.
settings.register_profile("soak", settings.get_profile("isthmus"), max_examples=5000)
settings.load_profile("isthmus")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew instead of comparing them")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
