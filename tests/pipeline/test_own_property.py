"""A property that exists only here: one line per table, and everything that judges, prints or draws knows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from known_mistakes import small
from pyspark import cloudpickle
from trace_files import all_rows, write_jsonl

import isthmus
from isthmus.cli.main import main
from isthmus.lab.standard import standard_group
from isthmus.pipeline.audit import audit
from isthmus.pipeline.engine.finding import Described, Finding
from isthmus.pipeline.engine.judges import JUDGES
from isthmus.pipeline.engine.receiver import Receiver
from isthmus.pipeline.engine.run import Judge
from isthmus.pipeline.ingest import ingest, open_table
from isthmus.pipeline.report import write_report
from isthmus.simulator.campaign import run_seed
from isthmus.trace.history import RunHistory
from isthmus.trace.oracles import ORACLES, OracleFinding, judge
from isthmus.trace.properties import PROPERTIES, Mistake, Property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 50
OWN = "modest"


def why(mistake: Mistake) -> str:
    return f"{mistake.process} delivered {mistake.first} at index {mistake.first_index}, which is enough"


def oracle(history: RunHistory, found: OracleFinding) -> None:
    for process in history.members:
        found.checked += 1
        for message in list(process.deliveries)[MOST : MOST + 1]:
            found.violated(process, message)


class ModestJudge(Judge):
    def look(self, receiver: Receiver, found: Finding) -> None:
        found.checked = 1
        for message in found.count(receiver.order[MOST : MOST + 1]):
            first, index = receiver.chains.text(message), receiver.index_of(message)
            found.described.append(Described(Mistake(process=receiver.name, first=first, first_index=index)))


@pytest.fixture(autouse=True)
def _own_property(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Property(meaning="nobody delivers much", violated_when="a process delivers much", why=why, by_default=False)
    monkeypatch.setitem(PROPERTIES, OWN, own)
    monkeypatch.setitem(ORACLES, OWN, oracle)
    monkeypatch.setitem(JUDGES, OWN, ModestJudge)
    # Workers of Spark cannot import a test, so it is carried to them whole.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("much")
    ingest(spark, [write_jsonl(directory / "rows.jsonl", all_rows(small("much")))], directory / "table")
    return directory / "table"


def test_the_oracles_judge_simulated_runs_by_it() -> None:
    outcome = run_seed(standard_group("causal"), 1)
    assert outcome.report.verdict(OWN) == "violated"
    assert "which is enough" in next(each.why for each in outcome.report.violations if each.property == OWN)


def test_the_audit_judges_it_where_it_is_expected_as_the_oracles_do(spark: SparkSession, table: Path) -> None:
    for rows_per_task in (1_000_000, 0):
        report = audit(spark, open_table(table), expected=[OWN], rows_per_task=rows_per_task)
        judged = [each for each in report.verdicts if each.property == OWN]
        assert judged == judge(all_rows(small("much")), [OWN]).verdicts
        assert report.verdict(OWN) == "violated"
    assert OWN not in {each.property for each in isthmus.audit(spark, table, expect=["fifo"]).report.verdicts}


def test_it_is_unknown_where_the_table_has_no_judge_of_it(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(JUDGES, OWN)
    report = isthmus.audit(spark, table, expect=[OWN]).report
    assert (report.verdict("integrity"), report.verdict(OWN)) == ("holds", "unknown")


@pytest.mark.usefixtures("spark")
def test_the_command_fails_when_it_is_expected_and_violated(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["isthmus", "audit", str(table), "--expect", OWN])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "which is enough" in capsys.readouterr().out


def test_the_report_shows_what_it_means_and_a_picture(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    write_report(spark, [table], tmp_path / "report.html", expected=[OWN])
    page = (tmp_path / "report.html").read_text()
    assert "nobody delivers much" in page
    assert f"{OWN}, violated at" in page
