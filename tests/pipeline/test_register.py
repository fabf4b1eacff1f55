"""The one import that a user of the streaming source needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from patience import seconds
from trace_files import all_rows, rounds, write_jsonl

from isthmus.pipeline import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_after_register_spark_knows_the_source(spark: SparkSession, tmp_path: Path) -> None:
    rows = all_rows(rounds("r", processes=2, messages=3))
    write_jsonl(tmp_path / "rows.jsonl", rows)
    register(spark)
    assert "rank" in spark.read.format("isthmus").option("path", str(tmp_path)).load().columns


def test_importing_it_imports_no_spark() -> None:
    code = "import sys; from isthmus.pipeline import register; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=seconds(100)).returncode == 0
