"""Prints the report of a command on standard output: lines for a person, or JSON or YAML for a program."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

from railnet.cli.colour import PLAIN, Words
from railnet.cli.escapes import printable


class Form(StrEnum):
    """The value of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CTRF = "ctrf"  # the Common Test Report Format, which is JSON


class Output(NamedTuple):
    """How a command prints.

    Attributes:
        coloured: whether lines for a person have colours.
    """

    form: Form = Form.TABLE
    coloured: bool = False

    @property
    def wide(self) -> bool:
        """Return whether a table has all its columns."""
        return self.form is Form.WIDE

    @property
    def for_programs(self) -> bool:
        """Return whether a program reads the output."""
        return self.form in (Form.JSON, Form.YAML, Form.CTRF)

    def show(self, told: object, lines: Iterable[str], words: Words = PLAIN) -> None:
        """Print one report: `told` for a program, `lines` for a person. Only what is printed is taken from `lines`."""
        text = self.text(told) if self.for_programs else "".join(f"{line}\n" for line in self.shown(lines, words))
        # By lines: with PYTHONUNBUFFERED, Python drops without an error what a closed pipe has not taken of one long text.
        sys.stdout.writelines(text.splitlines(keepends=True))
        sys.stdout.flush()

    def shown(self, lines: Iterable[str], words: Words = PLAIN) -> list[str]:
        """Return lines as a terminal may show them, in colours if there are any."""
        safe = [printable(line) for line in lines]
        return [words.painted(line) for line in safe] if self.coloured else safe

    def text(self, told: object) -> str:
        """Return a report for a program, as a whole document."""
        text = json.dumps(told, indent=1)
        return _yaml(text) if self.form is Form.YAML else text + "\n"

    def text_of_series(self, told: object) -> str:
        """Return one report of many that follow each other: a line of JSON, or a document of YAML."""
        text = json.dumps(told)
        return text + "\n" if self.form is Form.JSON else f"---\n{_yaml(text)}"


def has_colours(out: TextIO, environ: Mapping[str, str] = os.environ, *, refused: bool = False) -> bool:
    """Return whether colours are written: to a terminal that has them, unless the person refused them, as no-color.org says."""
    return out.isatty() and not refused and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def chosen(form: str | None, *, no_color: bool) -> Output:
    """Return the output that the options of `railnet.cli.arguments` choose."""
    return Output(Form(form or Form.TABLE), has_colours(sys.stdout, refused=no_color))


def _yaml(json_text: str) -> str:
    import yaml  # noqa: PLC0415 - a table needs none

    class Dumper(yaml.SafeDumper):
        """Writes a text of several lines as lines, where YAML can."""

    def text_of(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, text_of)
    told: Any = json.loads(json_text)  # YAML knows no tuples and no enumerations
    written: str = yaml.dump(told, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return written
