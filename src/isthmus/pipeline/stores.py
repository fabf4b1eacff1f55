"""The settings of stores that a session of Spark has, for the driver's own process and for tasks.

They are those of the driver and go to every task: workers need none of their own. A server of Spark Connect tells what
it knows but for secrets; those have to be in the environment of its client, or in the settings it was begun with here.
They travel inside functions and objects, never as options or settings of a query, which its plan would show. What each
means is said in `isthmus.trace.stores`.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from isthmus.pipeline.session import settings_told
from isthmus.trace import stores
from isthmus.trace.stores import NAMES, PREFIXES, StoreSettings


def use_settings_of(spark: SparkSession) -> StoreSettings:
    """Reach stores from this process as the session says; give the settings, which a task has to `use` first."""
    known = {**spark.conf.getAll, **settings_told(spark)}
    java: Any = getattr(spark, "_jsc", None)
    if java is not None:  # not Spark Connect: what core-site.xml says is known here as well
        hadoop = java.hadoopConfiguration()
        for name in NAMES:
            # What Hadoop comes with says nothing: it has hosts by bucket, which no endpoint of one's own understands.
            sources = hadoop.getPropertySources(name)
            if sources and sources[-1] != "core-default.xml":
                known.setdefault(f"spark.hadoop.{name}", hadoop.get(name))
        for prefix in PREFIXES:
            for entry in hadoop.getPropsWithPrefix(prefix).entrySet().toArray():
                known.setdefault(f"spark.hadoop.{prefix}{entry.getKey()}", entry.getValue())
    settings = StoreSettings(known, os.environ)
    stores.use(settings)
    return settings


class Carried:
    """Settings that a process uses from the moment that it unpickles them."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        stores.use(self.settings)


def reaching(spark: SparkSession, source: type[DataSource]) -> type[DataSource]:
    """A source of data that reaches stores as the session does: in the process that plans, and in every task."""
    carrying = Carried(use_settings_of(spark))

    class Reaching(source):  # type: ignore[valid-type, misc]
        carried = carrying

        def reader(self, schema: StructType) -> DataSourceReader:
            made: Any = super().reader(schema)
            made.carried = carrying
            return made  # type: ignore[no-any-return]

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            made: Any = super().streamReader(schema)
            made.carried = carrying
            return made  # type: ignore[no-any-return]

    return Reaching
