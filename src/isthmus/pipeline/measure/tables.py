"""What is measured, as Spark tables over the clean rows of a trace: one function per table.

Times are the processes' own clocks. Latency compares the clock of the receiver with that of the sender, so it is as
good as the clocks agree; where a delivery seems to come before its send, the pair counts it in `clocks_disagree`
and does not hide it in a percentile. Hold-back compares a process with itself. Nothing here says anything about order.

Everything about single messages comes from one exchange: rows are brought together by message, and the windows that
find the time of sending, the first delivery and the end of every wait all run inside of that.

Percentiles are elements of the sample (nearest rank): exact up to 10,000 values, beyond that off by one in 10,000 ranks
at most, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from isthmus.pipeline.measure.rows import BINS_PER_DECADE, SHORTEST_BIN_NS

SLICES = 60
"""At most so many slices of time per run, for throughput over time and the peak of a link."""

_MESSAGE = ("run", "origin_system", "origin_process", "origin_seq")
_PAIR = ("run", "origin_system", "system")
_ACCURACY = 10_000
_SECOND = 1e9
_LARGEST = (1 << 63) - 1


def runs(rows: DataFrame) -> DataFrame:
    """One row per run: its size, when it was, and the slices of time that its other figures use."""
    event, app = f.col("event"), f.col("role") == "app"
    moves = event.isin("send", "deliver", "transfer", "accept")
    per_log = rows.groupBy("run", "system", "process").agg(
        f.count("*").alias("events"),
        _count(app & (event == "send")).alias("messages"),
        _count(app & (event == "deliver")).alias("deliveries"),
        f.min(f.when(moves, f.col("time_ns"))).alias("first_ns"),
        f.max(f.when(moves, f.col("time_ns"))).alias("last_ns"),
    )
    found = per_log.groupBy("run").agg(
        f.count_distinct("system").alias("systems"),
        f.count("*").alias("processes"),
        *(f.sum(name).alias(name) for name in ("events", "messages", "deliveries")),
        f.min("first_ns").alias("first_ns"),
        f.max("last_ns").alias("last_ns"),
    )
    span = _difference("last_ns", "first_ns")
    rough = f.greatest(span / SLICES, f.lit(1.0))  # the width is 1, 2 or 5 times a power of 10, and no less than this
    power = f.pow(f.lit(10.0), f.floor(f.log10(rough)))
    steps = f.when(rough <= power, 1).when(rough <= 2 * power, 2).when(rough <= 5 * power, 5).otherwise(10)
    found = found.withColumn("slice_ns", (power * steps).cast("bigint"))
    slices = f.floor(span / f.col("slice_ns")) + 1
    return found.withColumn("slices", f.least(slices, f.lit(SLICES + 1)).cast("int"))


def by_message(rows: DataFrame) -> DataFrame:
    """Sends, deliveries and holds with what their message adds: the table that most others are made of."""
    event, app = f.col("event"), f.col("role") == "app"
    chosen = rows.where(event.isin("send", "deliver", "hold")).select(
        *_MESSAGE, *("system", "process", "role", "index", "event", "peer", "note", "payload_bytes", "control_bytes"),
        "time_ns",
    )  # fmt: skip
    chosen = chosen.repartition(*_MESSAGE).withColumn("is_send", event == "send")
    whole = Window.partitionBy(*_MESSAGE)
    there = Window.partitionBy(*_MESSAGE, "system", "process", "is_send").orderBy("index")
    so_far = there.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sent = f.min(f.when(app & (event == "send"), f.col("time_ns"))).over(whole)
    found = (
        chosen.withColumn("sent_ns", sent)
        .withColumn("deliveries_so_far", f.count(f.when(event == "deliver", 1)).over(so_far))
        .withColumn("held_since", f.first(f.when(event == "hold", f.col("time_ns")), ignorenulls=True).over(so_far))
        .withColumn("until_ns", f.lead("time_ns").over(there))
    )
    first = (event == "deliver") & (f.col("deliveries_so_far") == 1)
    found = found.withColumn("arrival", first & app)
    in_system = Window.partitionBy(*_MESSAGE, "system").orderBy(f.col("arrival").desc(), "process", "index")
    return found.withColumns(
        {
            "new_here": f.col("arrival") & (f.row_number().over(in_system) == 1),
            "latency_ns": f.when(
                f.col("arrival") & (f.col("time_ns") >= f.col("sent_ns")), _difference("time_ns", "sent_ns")
            ),
            "backwards": f.col("arrival") & (f.col("time_ns") < f.col("sent_ns")),
            "held_ns": f.when(f.col("arrival"), _difference("time_ns", "held_since")),
            "waits": (event == "hold") & (f.col("deliveries_so_far") == 0),
        }
    )


def pairs(messages: DataFrame) -> DataFrame:
    """Per run, system of origin and system of delivery: latency, throughput, hold-back, bytes of first deliveries."""
    arrivals = messages.where("arrival")
    found = arrivals.groupBy(*_PAIR).agg(
        _count(f.col("new_here")).alias("messages"),
        f.count("*").alias("deliveries"),
        f.count("latency_ns").alias("timed"),
        _count(f.col("backwards")).alias("clocks_disagree"),
        *_spread("latency_ns", "latency"),
        f.min("sent_ns").alias("first_ns"),
        f.max("time_ns").alias("last_ns"),
        f.count("held_ns").alias("held"),
        *_spread("held_ns", "held"),
        _total("payload_bytes").alias("payload_bytes"),
        _total("control_bytes").alias("control_bytes"),
    )
    seconds = _difference("last_ns", "first_ns") / _SECOND
    found = found.withColumn("seconds", f.when(seconds > 0, seconds)).drop("first_ns", "last_ns")
    rates = {f"{name}_per_second": f.col(name) / f.col("seconds") for name in ("messages", "deliveries")}
    return found.withColumns(rates)


def latencies(messages: DataFrame) -> DataFrame:
    """The histogram of latencies of each pair; `bin` is the logarithm of the latency, see `measure_rows.bin_edges`."""
    latency = f.greatest(f.col("latency_ns"), f.lit(SHORTEST_BIN_NS)).cast("double")
    bin_ = f.floor(f.log10(latency) * BINS_PER_DECADE).cast("int")
    timed = messages.where(f.col("latency_ns").isNotNull()).withColumn("bin", bin_)
    return timed.groupBy(*_PAIR, "bin").agg(f.count("*").alias("deliveries"))


def throughput(messages: DataFrame, of_runs: DataFrame) -> DataFrame:
    """First deliveries of each pair in each slice of its run's time."""
    sliced = _sliced(messages.where("arrival"), of_runs)
    return sliced.groupBy(*_PAIR, "slice").agg(
        f.count("*").alias("deliveries"), _total("payload_bytes").alias("payload_bytes")
    )


def waits(messages: DataFrame) -> DataFrame:
    """What was waited for: per holding system and awaited process, how often and how long.

    A wait lasts until the next row of the same message at the same process: another wait, or the delivery. The number
    of a batch in a note says nothing about the next, so numbers are left out of the reason.
    """
    reason = f.regexp_replace(f.coalesce(f.col("note"), f.lit("")), r"\b\d+\b", "N")
    ended = _difference("until_ns", "time_ns")
    held = messages.where("waits").withColumns({"reason": reason, "waited_ns": ended, "awaited": f.col("peer")})
    return held.groupBy("run", "system", "role", "awaited", "reason").agg(
        f.count("*").alias("waits"),
        _count(f.col("until_ns").isNull()).alias("unended"),
        _total("waited_ns").alias("waited_ns"),
        *_spread("waited_ns", "waited"),
    )


def message_sizes(messages: DataFrame) -> DataFrame:
    """One row per message: payload, control information, how far and how fast it came. Large: one row per message."""
    return messages.groupBy(*_MESSAGE).agg(
        f.max("payload_bytes").alias("payload_bytes"),
        f.max("control_bytes").alias("control_bytes"),
        _total(f.when(f.col("arrival"), f.col("control_bytes"))).alias("control_bytes_all"),
        _count(f.col("arrival")).alias("deliveries"),
        f.min("latency_ns").alias("first_latency_ns"),
        f.max("latency_ns").alias("last_latency_ns"),
    )


def links(rows: DataFrame, of_runs: DataFrame, bits_per_second: float | None = None) -> DataFrame:
    """Per link and direction: what went onto it, its rate over the run and at its peak, its share of its direction.

    A trace does not say what a link can carry. Where the caller does, `utilisation` is the share of that which was used
    from the first to the last movement of the run; `busy` is the share of the run's slices in which anything went.
    """
    event, here = f.col("event"), ("run", "link", "from_system")
    renamed = rows.withColumnsRenamed({"peer": "link", "system": "from_system"}).where(f.col("link").isNotNull())
    sliced = _sliced(renamed.where(event == "transfer"), of_runs)
    found = (
        sliced.groupBy(*here, "slice")
        .agg(
            f.count("*").alias("transfers"),
            _total("payload_bytes").alias("payload_bytes"),
            _total("control_bytes").alias("control_bytes"),
        )
        .withColumn("bytes", f.col("payload_bytes").cast("double") + f.col("control_bytes"))
        .groupBy(*here)
        .agg(
            f.sum("transfers").alias("transfers"),
            *(_total(name).alias(name) for name in ("payload_bytes", "control_bytes")),
            f.sum("bytes").alias("bytes"),
            f.max("bytes").alias("peak"),
            f.count("*").alias("slices_used"),
        )
    )
    accepted = renamed.where(event == "accept").groupBy(*here).agg(f.count("*").alias("accepted"))
    far = accepted.withColumnRenamed("from_system", "to_system")
    other = f.col("to_system") != f.col("from_system")
    ends = found.select(*here).join(far, ["run", "link"]).where(other)
    ends = ends.groupBy(*here).agg(
        f.array_join(f.sort_array(f.collect_set("to_system")), ", ").alias("to_system"),
        f.sum("accepted").alias("accepted"),
    )
    span = of_runs.select("run", "first_ns", "last_ns", "slice_ns", "slices")
    found = found.join(ends, list(here), "left").join(f.broadcast(span), "run")
    seconds = _difference("last_ns", "first_ns") / _SECOND
    rate = f.when(seconds > 0, f.col("bytes") / seconds)
    alike = Window.partitionBy("run", "from_system", "to_system")
    utilisation = rate * 8 / bits_per_second if bits_per_second else f.lit(None).cast("double")
    return found.select(
        *here,
        "to_system",
        "transfers",
        f.coalesce("accepted", f.lit(0)).alias("accepted"),
        *("payload_bytes", "control_bytes"),
        f.coalesce(f.col("bytes") / f.nullif(f.sum("bytes").over(alike), f.lit(0)), f.lit(0.0)).alias("share"),
        rate.alias("bytes_per_second"),
        (f.col("peak") * _SECOND / f.col("slice_ns")).alias("peak_bytes_per_second"),
        (f.col("slices_used") / f.col("slices")).alias("busy"),
        utilisation.alias("utilisation"),
    )


def processes(rows: DataFrame) -> DataFrame:
    """Per process: how many messages it handled, in which ways."""
    event = f.col("event")
    names = {
        "send": "sent", "deliver": "delivered", "hold": "held", "stable": "stable", "transfer": "transferred",
        "accept": "accepted", "sequence": "sequenced",
    }  # fmt: skip
    delivered = f.when(event == "deliver", f.col("payload_bytes"))
    return rows.groupBy("run", "system", "process", "role").agg(
        *(_count(event == each).alias(name) for each, name in names.items()),
        _total(delivered).alias("delivered_bytes"),
        f.min("time_ns").alias("first_ns"),
        f.max("time_ns").alias("last_ns"),
    )


def _sliced(rows: DataFrame, of_runs: DataFrame) -> DataFrame:
    """Rows with the number of their slice of time. The last slice takes what a damaged clock puts beyond it."""
    widths = f.broadcast(of_runs.select("run", "first_ns", "slice_ns", "slices"))
    place = f.floor(_difference("time_ns", "first_ns") / f.col("slice_ns"))
    sliced = rows.join(widths, "run").withColumn("slice", f.least(place, f.col("slices") - 1).cast("int"))
    return sliced.drop("first_ns", "slice_ns", "slices")


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


def _difference(later: str, earlier: str) -> Column:
    """Of two times. Clocks that are further apart than 64 bits hold are damaged, and no reason to stop."""
    known = f.col(later).isNotNull() & f.col(earlier).isNotNull()
    return f.when(known, f.coalesce(f.try_subtract(f.col(later), f.col(earlier)), f.lit(_LARGEST)))


def _total(what: str | Column) -> Column:
    """A sum that is 0 for nothing, and the largest number where sizes in a damaged trace add up to more."""
    return f.coalesce(f.try_sum(what), f.when(f.count(what) > 0, f.lit(_LARGEST)).otherwise(0))


def _spread(name: str, prefix: str) -> Sequence[Column]:
    """Least, middle, tail, most and mean of a column; null where there is nothing."""
    percentiles = f.percentile_approx(name, [0.5, 0.9, 0.99], _ACCURACY)
    return [
        f.min(name).alias(f"{prefix}_min_ns"),
        *(f.get(percentiles, f.lit(place)).alias(f"{prefix}_p{of}_ns") for place, of in enumerate((50, 90, 99))),
        f.max(name).alias(f"{prefix}_max_ns"),
        f.avg(name).alias(f"{prefix}_mean_ns"),
    ]
