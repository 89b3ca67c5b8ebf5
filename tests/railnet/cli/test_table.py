"""Columns are aligned under their heads, whatever the cells contain."""

from railnet.cli.table import Column, aligned


def test_numbers_are_aligned_on_the_right_and_no_line_ends_with_spaces() -> None:
    columns = (Column("NAME"), Column("VFS", number=True), Column("WHY"))

    assert list(aligned(columns, [("a", "1", ""), ("longer", "1016", "x")], rule="-")) == [
        "NAME     VFS  WHY",
        "------  ----  ---",
        "a          1",
        "longer  1016  x",
    ]


def test_cell_that_cannot_be_printed_takes_the_width_of_what_is_shown() -> None:
    assert list(aligned((Column("A"), Column("B")), [("\x1b", "x"), ("longer", "y")])) == [
        "A       B",
        "\\x1b    x",
        "longer  y",
    ]
