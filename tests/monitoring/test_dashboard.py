"""The dashboard: its panels ask for what is exported, in expressions that promtool parses and that find series in the programs' texts."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.dashboard import DASHBOARD, PANELS, VARIABLES, expressions
from tests.monitoring.exported import exported
from tests.monitoring.expressions import faults, filled_in, named
from tests.monitoring.promtool import check_expressions, find_series

EACH = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
WIDTH = 24  # of Grafana's grid
QUERIES = {one["name"]: one["query"]["query"] for one in VARIABLES if one["type"] == "query"}


def test_rows_are_those_of_the_page() -> None:
    rows = [one["title"] for one in DASHBOARD["panels"] if one["type"] == "row"]

    assert rows == ["Overview", "Nodes", "Rails", "Pods", "ADD and DEL", "Leaks reclaimed", "Webhook", "Controllers"]


@EACH
def test_panel_asks_for_what_is_exported(panel: dict[str, Any]) -> None:
    assert [fault for target in panel["targets"] for fault in faults(target["expr"], exported())] == []


def test_promtool_parses_every_panel(tmp_path: Path) -> None:
    status, printed = check_expressions(tmp_path, map(filled_in, expressions()))

    assert status == 0, printed
    assert f"{len(list(expressions()))} rules found" in printed


@pytest.mark.slow
def test_every_panel_finds_series_in_what_the_programs_export(tmp_path: Path) -> None:
    status, printed = find_series(tmp_path, map(filled_in, expressions()), exported())

    assert status == 0, printed


@EACH
def test_legend_names_labels_that_the_answer_has(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        found = named(filled_in(target["expr"]))
        metrics = {selector.metric for selector in found.selectors}
        aggregated = re.search(r"\b(sum|max|min|count)\b", target["expr"]) is not None
        of_metrics = {label for one in exported() if one.name in metrics for label in one.labels}
        has = found.labels if aggregated else of_metrics

        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= has


@pytest.mark.parametrize("name", QUERIES)
def test_variable_has_the_values_of_a_label(name: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", QUERIES[name])

    assert found is not None
    assert faults(f"sum by ({found[2]}) ({found[1]})", exported()) == []


def test_every_variable_is_used_and_every_used_one_exists() -> None:
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))

    assert {name for name in used if not name.startswith("__")} == {one["name"] for one in VARIABLES}


@EACH
def test_panel_takes_the_chosen_data_source_and_says_what_it_shows(panel: dict[str, Any]) -> None:
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]

    assert {source["uid"] for source in sources} == {"${datasource}"}
    assert panel["description"].endswith(".")


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    every = DASHBOARD["panels"]
    cells = [
        (x, y)
        for one in every
        for grid in [one["gridPos"]]
        for x, y in itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"]))
    ]

    assert len({one["id"] for one in every}) == len(every)
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} <= set(range(WIDTH))
