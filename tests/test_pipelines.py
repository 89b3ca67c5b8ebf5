"""Shell scripts have no pipeline in which a command stops reading early.

The command before it then dies by SIGPIPE if it is still writing, and under `pipefail` the pipeline fails: sometimes, because it
depends on which of the two is faster. `[[ $(command) == *text* ]]` and `grep -q text <<<"$(command)"` have no pipe.
"""

import re
from collections.abc import Iterator

import pytest

from tests.test_linters import ROOT, shell_scripts

# A pipe, and the command behind it with its arguments, up to the next pipe, list operator, closing parenthesis or line.
# It is a lookahead, because a `|` in a text or a pattern may seem to have a command that ends far behind.
_READER = re.compile(r"""(?<![|>])\|&?(?!\|)\s*(?=((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^|&;)\n'"])*))""", re.DOTALL)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_STOPS_EARLY = re.compile(
    r"""
      (?:\{\s*)?(?:head|read|true|false|:)\b                                      # the first lines, one line, nothing
    | [a-z]*grep\s(?:.*\s)?(?:-[a-zA-Z]*[qmlL]|--quiet|--silent|--max-count|--files-with)   # the first match
    | sed\s.*[\d\s;'"/{$][qQ]\d*(?:[\s;'"}]|$)                                    # its command q
    | [mg]?awk\s.*\bexit\b                                                        # its statement exit
    """,
    re.VERBOSE | re.DOTALL,
)


def early_readers(script: str) -> Iterator[str]:
    """Yield the commands behind a pipe that may end before they have read all, in the text of a script with `pipefail`."""
    if "pipefail" in script:
        for match in _READER.finditer(_COMMENT.sub("", script)):
            if _STOPS_EARLY.match(match[1]):
                yield match[1].strip()


def test_no_command_behind_a_pipe_stops_reading_early():
    scripts = list(shell_scripts())

    assert ROOT / "scripts/setup" in scripts
    assert [(path.name, command) for path in scripts for command in early_readers(path.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        '"$new/usr/sbin/opensm" --version | grep -q OpenSM || fail',
        "opensm --version |\n    grep -q OpenSM",
        "opensm --version |& grep --quiet OpenSM",
        'text="$(opensm --version | grep -Fxq -- OpenSM)"',
        "zcat file | grep -iE 'a|b' -m1 >first",
        "zcat file | sort | head -n 1",
        "first=$(zcat file | head -c 10)",
        "zcat file | sed 1q",
        "zcat file | sed -n '/a/{p;q}'",
        "zcat file | sed '/a/q' >first",
        "zcat file | awk -v a=\"$a\" '$1 == a || $1 ~ /^b/ {print $2; exit}'",
        "zcat file | read -r first",
        "zcat file | { read -r first; }",
    ],
)  # fmt: skip
def test_a_reader_that_stops_early_is_found(line: str):
    assert len(list(early_readers(f"set -euo pipefail\n{line}\n"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        'grep -q text <<<"$(opensm --version)"',
        "opensm --version || grep -q text file",
        "opensm --version | grep -oE 'a|b' | sort -u",
        "zcat file | sed -n 's/query/q/p'",
        "zcat file | awk '{print $1}'",
        'zcat file | while read -r line; do echo "$line"; done',
        "# zcat file | head",
    ],
)  # fmt: skip
def test_a_command_that_reads_all_is_not_reported(line: str):
    assert list(early_readers(f"set -euo pipefail\n{line}\n")) == []


def test_a_script_without_pipefail_may_stop_early():
    assert list(early_readers("set -eu\nzcat file | head\n")) == []
