"""The tables of the documentation are those generated from the code."""

from pathlib import Path

import pytest

from tests.railnet.jobs.pages import BEGIN, FOLDER, tables_of, written


@pytest.mark.parametrize(
    ("page", "tables"), list(written()), ids=lambda value: value.stem if isinstance(value, Path) else ""
)
def test_page_has_the_tables_of_the_code(page: Path, tables: list[str]):
    assert tables_of(page) == tables, "scripts/setup python -m tests.railnet.jobs.pages writes them"


def test_every_page_with_a_table_is_known():
    pages = {page for page in FOLDER.glob("*.md") if BEGIN in page.read_text()}

    assert pages == {page for page, _ in written()}
