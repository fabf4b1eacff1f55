"""A streaming query in an OS process of its own, for whoever wants to kill it.

Reads logs with the isthmus source into Parquet with Spark's own exactly-once file sink, until it is killed. With
`connect`, it is a client of a Spark Connect server; there it first reads the logs as a table as well, and counts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from isthmus.pipeline.source import register

QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "2"}
"""It does not live long enough to be worth much compiling."""

LOCAL = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.connect.grpc.binding.address=127.0.0.1",
)


def main(mode: str, limit: str, checkpoint: str, sink: str, counted: str, *paths: str) -> None:
    if mode == "connect":
        from pyspark.sql import SparkSession

        # Workers need the interpreter that has this package; other sessions here see to that themselves.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # A port of its own, whatever else listens on this machine. A client of a local server learns it only in tests.
        os.environ["SPARK_TESTING"] = "1"
        os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"--conf {each}" for each in LOCAL) + " pyspark-shell"
        builder = SparkSession.builder.remote("local[2]")
        for key, value in QUICK.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    else:
        from isthmus.pipeline.session import spark_session

        spark = spark_session("local[2]", driver_memory="1g", shuffle_partitions=2, settings=QUICK)
    register(spark)
    if mode == "connect":
        read = spark.read.format("isthmus").option("events", "send,deliver").option("path", json.dumps(paths)).load()
        Path(counted).write_text(str(read.count()))
    reader = spark.readStream.format("isthmus").option("events", "send,deliver").option("maxRowsPerBatch", limit)
    rows = reader.option("path", json.dumps(paths)).load()
    rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(sink).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
