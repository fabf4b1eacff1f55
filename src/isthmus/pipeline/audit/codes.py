"""Rows of a table as numbers: what an audit moves and compares ten million times.

A name becomes a 64-bit hash, an event a small number. That needs no dictionary of names, so it works the same for ten
processes and for ten million; two names of one run that share a code are found in the small table of logs and refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from isthmus.trace.history import INCARNATION, INCARNATIONS_PER_LIFE
from isthmus.trace.schema import TraceError

OTHER, SEND, DELIVER, JOIN, CRASH, LEAVE, END, VIEW = range(8)
KINDS = {"send": SEND, "deliver": DELIVER, "join": JOIN, "crash": CRASH, "leave": LEAVE, "end": END, "view": VIEW}


def is_last(kind: Any) -> Any:
    """Whether kinds of event complete a log."""
    return (kind == CRASH) | (kind == LEAVE) | (kind == END)


def code(system: str, process: str) -> Column:
    """The code of a process whose names stand in these columns."""
    return f.xxhash64(system, process)


def code_of_name(name: Column) -> Column:
    """The code of a process that is named as `system/process`. The name of a system has no slash."""
    slash = f.instr(name, "/")
    return f.xxhash64(
        f.when(slash > 0, f.substring(name, f.lit(1), slash - 1)).otherwise(name),
        f.when(slash > 0, f.substring(name, slash + 1, f.length(name))).otherwise(f.lit("")),
    )


def group_of_views(system: str, process: str) -> Column:
    """The code of those who count views together: the system of a process, in one of its lives."""
    incarnation = f.regexp_extract(f.concat_ws("/", system, process), INCARNATION, 1)
    life = f.when(incarnation != "", f.floor(incarnation.cast("bigint") / INCARNATIONS_PER_LIFE)).otherwise(0)
    return f.xxhash64(f.col(system), life.cast("bigint"))


def coded(rows: DataFrame) -> DataFrame:
    """The rows of a table as numbers. Rows that are not about a message, or not an application's, stay for the gaps.

    A row about a view has the group that counts it as its `origin`, and its number as its `name`.
    """
    event = f.col("event")
    kind = f.lit(OTHER)
    for name, number in KINDS.items():
        kind = f.when(event == name, number).otherwise(kind)
    app = f.col("role") == "app"
    matters, view = app & event.isin("send", "deliver"), app & (event == "view")
    addressed = matters & f.col("destinations").isNotNull()
    destinations = f.when(addressed, f.transform("destinations", code_of_name))
    return rows.select(
        "run",
        code("system", "process").alias("process"),
        app.alias("app"),
        "index",
        kind.cast("tinyint").alias("kind"),
        f.when(matters, code("origin_system", "origin_process"))
        .when(view, group_of_views("system", "process"))
        .otherwise(0)
        .alias("origin"),
        f.when(matters, f.col("origin_seq")).otherwise(0).alias("seq"),
        # Never 0: that stands for everyone. Two sets that are equal but for order may have two codes, which is no harm.
        f.when(addressed, f.xxhash64("destinations").bitwiseOR(f.lit(1))).otherwise(0).alias("audience"),
        destinations.alias("destinations"),
        # Only asked where the `send` row is lost and `deliver` rows do not agree for whom the message was.
        f.when(view, f.col("peer"))
        .when(addressed & (event == "deliver"), f.concat_ws("/", "system", "process"))
        .alias("name"),
    )


def log_table(rows: DataFrame) -> DataFrame:
    """One row per log: its code, its names, how many rows."""
    return (
        rows.groupBy("run", "system", "process")
        .agg(f.count("*").alias("rows"))
        .withColumn("code", code("system", "process"))
    )


def refuse_shared_codes(logs: DataFrame) -> None:
    """Two processes with one code would be judged as one. By chance that takes billions of processes in one run."""
    shared = logs.groupBy("run", "code").count().where(f.col("count") > 1).limit(1).collect()
    if shared:
        raise TraceError(
            f"run {shared[0].run}", "the names of two processes have the same hash", "rename one of the processes"
        )


def as_numbers(column: Any) -> Any:
    """An Arrow column without nulls as a numpy array."""
    return np.asarray(column.to_numpy(zero_copy_only=False)) if hasattr(column, "to_numpy") else np.asarray(column)
