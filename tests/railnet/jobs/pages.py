"""The tables of `docs/training/`, generated from the code: `scripts/setup python -m tests.railnet.jobs.pages` writes them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from railnet.admission.environment import VARIABLES
from railnet.jobs.operators import OPERATORS, Operator
from tests.charts.rendered import as_written
from tests.railnet.jobs import dns_cost, platform

FOLDER = Path(__file__).resolve().parents[3] / "docs/training"
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
    yield "job", operator.job.title
    yield "role", operator.role.title
    yield "rank", ", then ".join(field.title for field in operator.rank)
    if operator.size is not None:
        yield "size", operator.size.title
    yield "the container that trains", containers(operator)
    for role, part in operator.roles.items():
        yield f"role `{role}`", part.value
    if operator.also_trains is not None:
        yield "a launcher that trains without GPUs has", operator.also_trains.title
    yield "pods that get a rail where no label says so", operator.default.value
    yield "its parameter servers may be [cleaned up](clean-up.md)", operator.servers.value


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


def dns_objects() -> str:
    per_job, per_task = dns_cost.of_one_service, dns_cost.of_a_service_for_each_task
    rows = {
        "Services": ("services", "1", "N"),
        "EndpointSlices": ("slices", f"⌈N / {dns_cost.SLICE}⌉", "N"),
        "Endpoints": ("endpoints", "0", "N"),
        "names that the DNS answers for": ("names", "N + 1", "2 N"),
        "their records A": ("records", "2 N", "2 N"),
        "events for each watcher, until all run": ("events", "1 + slices … 1 + N", "3 N … 4 N"),
        "endpoints in these events": ("sent", "N … about 50 N", "N … 2 N"),
    }
    lines = []
    for what, (field, job, task) in rows.items():
        lines.append([what, "job", job, *(_number(getattr(per_job(n), field)) for n in dns_cost.SIZES)])
        lines.append(["", "task", task, *(_number(getattr(per_task(n), field)) for n in dns_cost.SIZES)])
    return table(["", "a Service per", "formula", *(f"N = {n:,}" for n in dns_cost.SIZES)], lines)


def dns_queries() -> str:
    def least(n: int) -> str:
        return "" if dns_cost.fits_the_node_caches(n) else "at least "

    rows = (
        [
            f"{n:,}",
            f"{dns_cost.nodes(n):,}",
            f"{dns_cost.all_to_all(n):,}",
            _seconds(dns_cost.seconds(dns_cost.all_to_all(n), 2)),
            str(replicas),
            _seconds(dns_cost.seconds(dns_cost.all_to_all(n), replicas)),
            least(n) + f"{dns_cost.to_coredns_with_node_caches(n):,}",
            least(n) + _seconds(dns_cost.seconds(dns_cost.to_coredns_with_node_caches(n), replicas)),
        ]
        for n in dns_cost.SIZES
        for replicas in [dns_cost.replicas(dns_cost.nodes(n), dns_cost.nodes(n) * dns_cost.CORES_OF_A_NODE, linear())]
    )
    head = ["N", "nodes", "queries", "with 2 replicas", "autoscaler's replicas", "with these"]
    return table([*head, "queries that leave the nodes with NodeLocal DNSCache", "and with both"], rows)


def dns_answers() -> str:
    name = "mnist-net1.ml.svc.cluster.local"
    return table(
        ["N", f"bytes of the answer for `{name}`", "fits"], ((f"{n:,}", *_answer(n, name)) for n in dns_cost.SIZES)
    )


def _answer(n: int, name: str) -> tuple[str, str]:
    length = dns_cost.answer_bytes(n, name)
    fits = "one datagram" if length <= dns_cost.LARGEST_UDP_ANSWER else "TCP only"
    return f"{length:,}", fits if length <= dns_cost.LARGEST_ANSWER else "no message: it is truncated, always"


def linear() -> dict[str, int]:
    """Return the numbers of the chart's autoscaler of the cluster's DNS."""
    (manifest,) = (one for one in as_written("dns-autoscaler.yaml") if one["kind"] == "ConfigMap")
    found: dict[str, int] = json.loads(manifest["data"]["linear"])
    return found


def _number(value: int | tuple[int, int]) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value[0]:,} … {value[1]:,}"


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 else f"{value:,.0f} s"


def platform_pods() -> str:
    rows = (
        (f"[`{pod.file}`](platform/{pod.file})", f"{pod.kind} `{pod.workload}`", platform.explained(pod))
        for pod in platform.PODS
    )
    return table(["file", "workload", "what a review does to its pods"], rows)


def written() -> Iterator[tuple[Path, list[str]]]:
    """Yield each page with its tables, in their order."""
    yield FOLDER / "README.md", [overview(), environment()]
    yield FOLDER / "dns.md", [dns_objects(), dns_queries(), dns_answers()]
    yield FOLDER / "platform.md", [platform_pods()]
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
