"""What the three programs export: accepted by promtool, and each metric is in the documentation and on the dashboard."""

import re

import pytest

from tests.monitoring import dashboard
from tests.monitoring.exported import ROOT, Program, exported, families, texts
from tests.monitoring.expressions import filled_in, named
from tests.monitoring.promtool import answer, promtool

PAGES = ("docs/operations.md", "docs/install.md")


def documented() -> set[str]:
    """Return the metrics of the pages' tables; `a_{b,c}_d` is two names, and braces at a name's end have its labels."""
    written = "\n".join((ROOT / page).read_text() for page in PAGES)
    rows = re.findall(r"^\| (`railnet_.*?`) \|", written, re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`(railnet_[\w{},]*)`", row)}
    return {one for name in names for one in expanded(re.sub(r"\{[\w,]*\}$", "", name))}


def expanded(name: str) -> list[str]:
    found = re.search(r"\{([\w,]+)\}", name)
    if found is None:
        return [name]
    return [one for word in found[1].split(",") for one in expanded(name.replace(found[0], word, 1))]


@pytest.mark.parametrize("program", list(texts()))
def test_promtool_accepts_the_text_of_each_program(program: Program) -> None:
    assert promtool("check", "metrics", stdin=texts()[program]) == ""


def test_promtool_names_a_metric_that_is_not_as_usual() -> None:
    status, printed = answer("check", "metrics", stdin="# TYPE railnet_leaks counter\nrailnet_leaks 1\n")

    assert status
    assert "railnet_leaks" in printed


def test_every_family_has_a_sample() -> None:
    declared = {name for text in texts().values() for name in families(text)}

    assert declared == {one.family for one in exported()} - {"up"}


def test_tables_of_the_documentation_have_every_metric_and_no_other() -> None:
    assert documented() == {one.family for one in exported()} - {"up"}


def test_dashboard_has_every_metric() -> None:
    shown = {selector.metric for one in dashboard.expressions() for selector in named(filled_in(one)).selectors}

    assert {one.family for one in exported()} - {one.family for one in exported() if one.name in shown} == set()
