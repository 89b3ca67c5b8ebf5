"""Measure the counters of a scrape with 64 and with 1,016 VFs, and ADDs beside scrapes.

Run by `scripts/bench scrape`, inside a simulated node. The files are real files on tmpfs. A real sysfs asks the card's firmware for each
file of `counters`, which this does not measure. ADDs are timed in turns: without scrapes, and with a scrape each 100 ms.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from railnet.daemon import rail_counters
from railnet.daemon.rail_counters import RailCounters
from railnet.fabric.rdma_counter_deltas import OF_A_PF
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.record import SandboxPod
from railnet.vf.vf_table import Owner, VfTable
from simnode.node import Node
from tests.railnet.kernel.nodes import many_vfs
from tests.railnet.kernel.tree import Tree
from tests.railnet.vf.builders import a_record, an_attachment

RUNS = 20
ROUNDS = 40
COUNTS = (64, 1016)
SCRAPE_EACH_SECONDS = 0.1
URL = "http://127.0.0.1:9474/metrics"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench scrape", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"ADDs of each kind ({ROUNDS})")
    arguments = parser.parse_args()
    figures = {f"scrape_{count}_vfs_ms": scrapes(count) for count in COUNTS} | adds(arguments.rounds)
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name:<32}{value:>10.2f}")


def scrapes(attached: int) -> float:
    """Return the median of a scrape's milliseconds with so many VFs attached; each run reads anew."""
    with tempfile.TemporaryDirectory() as folder:
        Tree(Path(folder)).write(many_vfs())
        for port in Path(folder).glob("devices/*/*/infiniband/*/ports/1"):
            for name in OF_A_PF:
                (port / name).parent.mkdir(exist_ok=True)
                (port / name).write_text("123456789\n")
        sysfs = Sysfs(Path(folder))
        table = VfTable(sysfs.inventory())
        records = []
        for number, vf in enumerate(islice(table.inventory.vfs(), attached)):
            pod = f"pod-{number}"
            table.claim(vf.address, Owner(pod, "eth0", pod))
            rail = table.inventory.rail(vf.address) or 0
            records.append(
                replace(
                    a_record(an_attachment(vf=vf.address, rail=rail)), container_id=pod, pod=SandboxPod("ml", pod, pod)
                )
            )
        rail_counters._PAUSE_SECONDS = 0.0  # noqa: SLF001 - each run is to read
        return asyncio.run(_scrapes(RailCounters(table, sysfs, lambda: records)))


async def _scrapes(counters: RailCounters) -> float:
    times = []
    await counters.fresh()  # reads the free VFs, too: once in a daemon's life
    for _ in range(RUNS):
        began = time.perf_counter()
        await counters.fresh()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def adds(rounds: int) -> dict[str, float]:
    """Return the median of an ADD's milliseconds without and with scrapes, and their ratio."""
    quiet, scraped = [], []
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.start_daemon()
        for number in range(rounds):
            quiet.append(add(node, f"quiet-{number}"))
            with scraping():
                scraped.append(add(node, f"scraped-{number}"))
    medians = statistics.median(quiet), statistics.median(scraped)
    return {"add_ms": medians[0], "add_beside_scrapes_ms": medians[1], "ratio": medians[1] / medians[0]}


def add(node: Node, name: str) -> float:
    """Run and remove a pod with one rail; return the milliseconds until it runs."""
    began = time.perf_counter()
    pod = node.run_pod(name, vfs=1)
    took = (time.perf_counter() - began) * 1000
    node.remove_pod(pod)
    return took


@contextmanager
def scraping() -> Iterator[None]:
    """Scrape the daemon each 100 ms; the first scrape is answered before the block begins."""
    end = threading.Event()

    def scrape() -> None:
        while not end.wait(SCRAPE_EACH_SECONDS):
            urllib.request.urlopen(URL, timeout=10).read()

    urllib.request.urlopen(URL, timeout=10).read()
    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


if __name__ == "__main__":
    main()
