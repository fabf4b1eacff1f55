"""What all tests share: their patience, the flag that rewrites transcripts, and how Hypothesis works here."""

from __future__ import annotations

import patience
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["failures", "object_store", "shared_spark"]

# No deadline and no complaint about slowness: the machine may be busy, and time is nowhere a property under test.
settings.register_profile("isthmus", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# `pytest --hypothesis-profile soak`: the same tests, on many more examples.
settings.register_profile("soak", settings.get_profile("isthmus"), max_examples=5000)
settings.load_profile("isthmus")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew instead of comparing them")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    patience.measure(config.getoption("numprocesses", None) or 1)
    # What xdist hands to its workers has been stretched already, and so has what somebody asks for by hand.
    if config.option.timeout is None:
        config.option.timeout = patience.seconds(float(config.getini("timeout")))


def pytest_report_header() -> str:
    return f"patience: {patience.seconds(1):g} times that of a quick machine ({patience.VARIABLE})"


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
