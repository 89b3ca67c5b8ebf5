"""Measure reading a node's inventory from sysfs: 8 PFs with 127 VFs each, one of those VFs alone, and a resync.

A resync reads what uevents have named (or everything), and puts it into the VF table. Its reads run in threads, so its figures are
of the processor. All are measured in turns, so that other load affects them alike.

Run by `scripts/bench inventory`; needs no root. The tree is real files on tmpfs, with the kernel's nesting and links. A
real sysfs makes the text when it is read, which this does not measure.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from railnet.daemon.resync.periodic_resync import look_again
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.changed_functions import EVERYTHING, MOST, ChangedFunctions
from railnet.vf.vf_table import VfTable
from tests.railnet.kernel.nodes import many_vfs
from tests.railnet.kernel.tree import Tree

RUNS = 20
TMPFS = Path("/dev/shm")  # noqa: S108 - every Linux has it, writable for all


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench inventory", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        report(measure(Path(folder)), as_json=arguments.json)


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Write the tree and time the reads; return the figures of each read."""
    Tree(folder).write(many_vfs())
    sysfs = Sysfs(folder)
    table = VfTable(sysfs.inventory())  # also warms up
    vfs = [vf.address for vf in table.inventory.vfs()]
    pf = table.inventory.pfs[0].address
    last = table.inventory.vf(vfs[-1])
    if last is None:
        raise RuntimeError("the tree has no VFs")
    cases: dict[str, Callable[[], object]] = {
        f"inventory of {len(table.inventory.pfs)} PFs and {len(vfs)} VFs": sysfs.inventory,
        "one VF again": lambda: sysfs.reread(last),
    }
    named = {
        "everything": EVERYTHING,
        "one VF that was moved": ChangedFunctions(frozenset(vfs[-1:])),
        "eight VFs, one of each PF": ChangedFunctions(frozenset(vfs[126::127])),
        f"{MOST} VFs": ChangedFunctions(frozenset(vfs[:MOST])),
        "one PF and its VFs": ChangedFunctions(cards=frozenset({pf})),
    }
    with asyncio.Runner() as runner:
        for what, changed in named.items():
            cases[f"resync: {what}"] = partial(resync, runner, table, sysfs, changed)
        times: dict[str, list[float]] = {what: [] for what in cases}
        for _ in range(RUNS):
            for what, read in cases.items():
                times[what].append(timed(read, time.process_time if what.startswith("resync") else time.perf_counter))
    return {what: figures(sorted(taken)) for what, taken in times.items()}


def resync(runner: asyncio.Runner, table: VfTable, sysfs: Sysfs, changed: ChangedFunctions) -> None:
    """Read what has changed, into the table."""
    runner.run(look_again(table, sysfs, changed))


def figures(times: list[float]) -> dict[str, float]:
    """Return median and p99 in milliseconds."""
    return {"median_ms": statistics.median(times), "p99_ms": statistics.quantiles(times, n=100, method="inclusive")[98]}


def timed(read: Callable[[], object], clock: Callable[[], float]) -> float:
    """Time one read in milliseconds."""
    began = clock()
    read()
    return (clock() - began) * 1000


def report(measured: dict[str, dict[str, float]], *, as_json: bool) -> None:
    """Print figures as JSON or as a table."""
    if as_json:
        print(json.dumps({name: {key: round(ms, 3) for key, ms in row.items()} for name, row in measured.items()}))
        return
    print(f"{'':34}{'median':>10}{'p99':>10}   of {RUNS} runs")
    for name, row in measured.items():
        print(f"{name:34}{row['median_ms']:7.2f} ms{row['p99_ms']:7.2f} ms")


if __name__ == "__main__":
    main()
