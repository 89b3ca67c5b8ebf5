"""Compare policies of placement on simulated fabrics, and measure the planner; fail beyond a target, or if a run breaks a rule.

Run by `scripts/bench placement`; needs no root. All policies get the same gangs, from the same seeds. The planner is the real one; nodes, arrivals
and the scheduler are simulated (`simnode/placement`). Its times are processor time, which other load of the machine changes little.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from simnode.placement.burst import Burst, burst
from simnode.placement.comparison import CONTENDERS, RELAXED_AFTER_30, Violated, judged
from simnode.placement.fabric import FABRICS, IRREGULAR, TEN_BY_64
from simnode.placement.figures import Figures, figures

Table = dict[str, dict[str, Figures]]

SEEDS, GANGS = 5, 1500
TARGETS = {TEN_BY_64.name: (0.97, 0.1), IRREGULAR.name: (0.84, 0.5)}  # one leaf at least; ring edges at most
BURST_GANGS, BURST_RUNS = 1000, 21
BURST_NODES, TARGET_BURST_MS = 5120, 50.0
LARGE_NODES = 20_032


def main() -> None:
    """Compare, measure, print, and end with 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench placement", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how often each policy runs on each fabric ({SEEDS})")
    parser.add_argument("--gangs", type=int, default=GANGS, help=f"how many gangs arrive in each run ({GANGS})")
    parser.add_argument("--planner", action="store_true", help="measure the planner's time alone")
    arguments = parser.parse_args()
    try:
        table = {} if arguments.planner else compared(arguments.seeds, arguments.gangs, quiet=arguments.json)
    except Violated as violated:
        sys.exit(f"scripts/bench placement: {violated}")
    bursts = {nodes: burst(nodes, BURST_GANGS, BURST_RUNS) for nodes in (BURST_NODES, LARGE_NODES)}
    if arguments.json:
        rows = {fabric: {name: asdict(row) for name, row in rows.items()} for fabric, rows in table.items()}
        print(
            json.dumps({"fabrics": rows, "planner": {nodes: asdict(latencies) for nodes, latencies in bursts.items()}})
        )
    else:
        print_bursts(bursts)
    sys.exit("\n".join((*misses(table), *slow(bursts))) or None)


def compared(seeds: int, gangs: int, *, quiet: bool) -> Table:
    """Run every policy on every fabric; print each row when it is known."""
    table: Table = {}
    for fabric in FABRICS:
        if not quiet:
            print(
                f"{fabric.name:36}{'one leaf':>9}{'edges':>7}{'wait':>8}{'p95':>7}{'largest':>9}{'used':>6}{'refused':>9}"
            )
        for contender in CONTENDERS:
            row = figures(fabric, [judged(fabric, contender, seed, gangs) for seed in range(seeds)])
            table.setdefault(fabric.name, {})[contender.name] = row
            if not quiet:
                print(line(contender.name, row), flush=True)
    return table


def line(name: str, row: Figures) -> str:
    """Write one row."""
    return (
        f"{name:36}{row.one_leaf:9.1%}{row.ring_edges:7.2f}{row.wait_mean:6.1f} s{row.wait_p95:5.0f} s"
        f"{row.wait_p95_largest:7.0f} s{row.utilisation:6.0%}{row.refused:9}"
    )


def print_bursts(bursts: dict[int, Burst]) -> None:
    """Print the planner's times."""
    print(
        f"{f'planner, {BURST_GANGS:,} gangs at once on':36}{'median':>10}{'fastest':>11}{'next':>10}{'placed':>9}{'pods':>8}"
    )
    for nodes, latencies in bursts.items():
        print(
            f"{f'{nodes:,} nodes':36}{latencies.median_ms:7.1f} ms{latencies.fastest_ms:8.1f} ms{latencies.next_ms:7.1f} ms{latencies.placed:9}{latencies.pods:8}"
        )


def misses(table: Table) -> Iterator[str]:
    """Compare what the planner reached with the targets."""
    for fabric, (least, most) in TARGETS.items():
        if fabric in table:
            reached = table[fabric][RELAXED_AFTER_30.name]
            if reached.one_leaf < least:
                yield f"{fabric}: {reached.one_leaf:.1%} of the gangs are in one leaf, the target is {least:.0%}"
            if reached.ring_edges > most:
                yield f"{fabric}: {reached.ring_edges:.2f} edges between leaves in a ring, the target is {most:g}"


def slow(bursts: dict[int, Burst]) -> Iterator[str]:
    """Compare the planner's time with its target."""
    if (median := bursts[BURST_NODES].median_ms) > TARGET_BURST_MS:
        yield f"planner: {median:.0f} ms for {BURST_GANGS} gangs on {BURST_NODES} nodes, the target is {TARGET_BURST_MS:g} ms"


if __name__ == "__main__":
    main()
