"""isthmus joins existing message-broadcast systems into one, without changing any of them.

    import isthmus

    result = isthmus.audit(spark, "traces")    # needs the extra `spark`, which is imported then and not before
    result.violations.show()
    isthmus.measure(spark, "traces").pairs.show()

docs/pipeline-api.md lists what is public of the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.pipeline import register as register
    from isthmus.pipeline.result import AuditResult as AuditResult
    from isthmus.pipeline.result import MeasureResult as MeasureResult
    from isthmus.pipeline.result import audit as audit
    from isthmus.pipeline.result import measure as measure

__version__ = "0.1.0"

_FOUND_IN = {
    "AuditResult": "pipeline.result",
    "MeasureResult": "pipeline.result",
    "audit": "pipeline.result",
    "measure": "pipeline.result",
    "register": "pipeline",
}

__all__ = ["AuditResult", "MeasureResult", "audit", "measure", "register"]


def __getattr__(name: str) -> Any:
    """Import what needs Spark when it is asked for."""
    from importlib import import_module

    if name not in _FOUND_IN:
        raise AttributeError(f"module 'isthmus' has no attribute '{name}'")
    import_module("isthmus.pipeline.session").require_packages()
    return getattr(import_module(f"isthmus.{_FOUND_IN[name]}"), name)
