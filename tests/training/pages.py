"""The tables of `docs/training/`, generated from the code: `scripts/setup python -m tests.training.pages` writes them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from admission.environment import VARIABLES
from training.operators import OPERATORS, Operator

FOLDER = Path(__file__).resolve().parents[2] / "docs/training"
BEGIN, END = "<!-- generated from the code -->\n", "<!-- end -->\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def of_operator(operator: Operator) -> str:
    return table(["", ""], facts(operator))


def facts(operator: Operator) -> Iterator[tuple[str, str]]:
    yield "labels that all its pods have", marks(operator)
    if operator.named:
        yield "and", "a container named as below"
    yield "job", str(operator.job)
    yield "role", str(operator.role)
    yield "rank", ", then ".join(map(str, operator.rank))
    if operator.size is not None:
        yield "size", str(operator.size)
    yield "the container that trains", containers(operator)
    for role, part in operator.roles.items():
        yield f"role `{role}`", part.value
    if operator.also_trains is not None:
        yield "a launcher that trains without GPUs has", str(operator.also_trains)
    yield "pods that get a rail where no label says so", operator.default.value


def marks(operator: Operator) -> str:
    return ", ".join(
        f"`{key}`" + (f" ({' or '.join(f'`{value}`' for value in values)})" if values else "")
        for key, values in operator.marks.items()
    )


def containers(operator: Operator) -> str:
    named = " or ".join(f"`{name}`" for name in operator.containers)
    if operator.named:
        return named
    return f"{named}, else the first with GPUs, else the first" if named else "the first with GPUs, else the first"


def overview() -> str:
    rows = (
        (f"[{operator.name}]({operator.page}.md)", marks(operator), operator.default.value) for operator in OPERATORS
    )
    return table(["", "recognised by", "pods that get a rail where no label says so"], rows)


def environment() -> str:
    rows = (
        (f"`{variable.name}`", f"`{variable.value}`", "yes" if variable.forwarded else "") for variable in VARIABLES
    )
    return table(["variable", "value", "also for a launcher without a VF"], rows)


def written() -> Iterator[tuple[Path, list[str]]]:
    """Yield each page with its tables, in their order."""
    yield FOLDER / "README.md", [overview(), environment()]
    for operator in OPERATORS:
        yield FOLDER / f"{operator.page}.md", [of_operator(operator)]


def tables_of(page: Path) -> list[str]:
    return [part.partition(END)[0] for part in page.read_text().split(BEGIN)[1:]]


def rewrite(page: Path, tables: list[str]) -> None:
    first, *parts = page.read_text().split(BEGIN)
    page.write_text(
        first + "".join(BEGIN + new + END + part.partition(END)[2] for part, new in zip(parts, tables, strict=True))
    )


if __name__ == "__main__":
    for path, tables in written():
        rewrite(path, tables)
