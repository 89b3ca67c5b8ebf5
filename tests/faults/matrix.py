"""The fault matrix: its rows, one for each operation, process and kind of fault; the file of rows; and the printed table."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

_HEAD = ("operation", "at each call of", "fault", "points", "recovered", "left over")
LEFT = "left over: "
_ROWS = Path(os.environ.get("RAILNET_FAULTS_ROWS", "/run/simnode/faults"))  # scripts/faults


@dataclass(slots=True)
class Row:
    """The result of one kind of fault at all points of an operation.

    Attributes:
        operation: the request or the start that has the fault.
        process: the process whose calls are the points.
        fault: the name of the kind of fault.
        points: the number of points tried.
        left: the number of objects left over.
        failures: a text for each problem, with its point.
        wrong: the number of points with problems.
    """

    operation: str
    process: str
    fault: str
    points: int = 0
    left: int = 0
    failures: list[str] = field(default_factory=list)
    wrong: int = 0

    def count(self, point: object, problems: list[str]) -> None:
        """Count one point and its problems."""
        self.points += 1
        self.wrong += bool(problems)
        self.left += sum(one.startswith(LEFT) for one in problems)
        self.failures += (found := [f"{point}: {one}" for one in problems])
        for one in found:  # printed at once, because a row takes minutes
            sys.stdout.write(f"{self.operation}, {self.process} {self.fault}: {one}\n")


def write(row: Row) -> None:
    """Append a row to the file of rows, which several processes write."""
    with _ROWS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def printed(rows: list[Row]) -> str:
    """Return the table with its sums."""
    numbers = [(row.points, row.points - row.wrong, row.left) for row in rows]
    sums = tuple(map(sum, zip(*numbers, strict=True)))
    lines = [
        _HEAD,
        *((row.operation, row.process, row.fault, *map(str, three)) for row, three in zip(rows, numbers, strict=True)),
        ("in all", "", "", *map(str, sums)),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    words, numbers = zip(cells[:3], widths[:3], strict=True), zip(cells[3:], widths[3:], strict=True)
    return "  ".join([*(cell.ljust(width) for cell, width in words), *(cell.rjust(width) for cell, width in numbers)])


if __name__ == "__main__":
    found = [Row(**json.loads(line)) for line in _ROWS.read_text(encoding="utf-8").splitlines()]
    sys.stdout.write(printed(sorted(found, key=lambda row: (row.operation, row.process, row.fault))) + "\n")
