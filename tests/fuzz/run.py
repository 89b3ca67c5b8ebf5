"""The program `scripts/fuzz`: try many inputs on every parser, and print the results as a table."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.fuzz.campaign import SHARE, Coverage, Finding, Result, covered, keep, run_share, shortened
from tests.fuzz.parsers import PARSERS

TOTAL = 100_000
ENOUGH_PERCENT = 95.0
COVERED = 2_000  # inputs of each parser for which reached branches are counted


def main() -> None:
    """Run the campaign. The exit status is 1 if there is a finding, or if too few branches of a parser were reached."""
    arguments = _arguments()
    names = arguments.parser or list(PARSERS)
    began = time.monotonic()
    results, coverages = campaign(names, arguments.seed, arguments.total, min(arguments.total, COVERED))
    for line in table(results, coverages):
        print(line)
    for name, result in results.items():
        for finding in result.findings.values():
            _report(name, finding)
    total = sum(result.inputs for result in results.values())
    print(f"{total} inputs in {time.monotonic() - began:.0f} s, seed {arguments.seed}")
    few = [name for name, reached in coverages.items() if reached.percent < ENOUGH_PERCENT]
    if few:
        print(f"fewer than {ENOUGH_PERCENT:g} % of the branches reached: {', '.join(few)}")
    sys.exit(1 if few or any(result.findings for result in results.values()) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--total", type=int, default=TOTAL, help=f"inputs for each parser ({TOTAL})")
    parser.add_argument("--parser", action="append", choices=PARSERS, help="try only this parser; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the same seed and corpus give the same inputs (0)")
    return parser.parse_args()


def campaign(
    names: Iterable[str], seed: int, total: int, measured: int
) -> tuple[dict[str, Result], dict[str, Coverage]]:
    """Try `total` inputs of each parser, in one process for each CPU. Count the branches that the first `measured` inputs reach."""
    results = {name: Result() for name in names}
    coverages: dict[str, Coverage] = {}
    spawn = multiprocessing.get_context("spawn")  # gRPC has threads, and a forked process would lack them
    with ProcessPoolExecutor(os.cpu_count(), spawn) as pool:
        counting = {pool.submit(covered, name, seed, measured): name for name in results}
        trying = {
            pool.submit(run_share, name, seed, share, min(SHARE, total - share * SHARE)): name
            for name in results
            for share in range(-(-total // SHARE))
        }
        for done in as_completed(trying):
            results[trying[done]].add(done.result())
        for counted in as_completed(counting):
            coverages[counting[counted]] = counted.result()
    return results, coverages


def table(results: dict[str, Result], coverages: dict[str, Coverage]) -> Iterable[str]:
    """Yield the results as lines of a table, then the lines and branches that no input reached."""
    yield f"{'parser':<16}{'inputs':>9}{'seconds':>9}{'inputs/s':>10}{'slowest':>10}{'branches':>10}{'lines':>9}{'findings':>10}"
    for name, result in results.items():
        rate = result.inputs / result.seconds if result.seconds else 0
        reached = coverages[name]
        share = f"{reached.percent:.1f} %" if reached.branches else "none"
        yield (
            f"{name:<16}{result.inputs:>9}{result.seconds:>9.1f}{rate:>10.0f}{result.slowest * 1000:>7.0f} ms"
            f"{share:>10}{reached.percent_of_lines:>7.1f} %{len(result.findings):>10}"
        )
    for name in results:
        for line in coverages[name].missing:
            yield f"{name}: not reached: {line}"


def _report(name: str, finding: Finding) -> None:
    short = shortened(PARSERS[name], finding)
    print(
        f"\n{name}: {short.where}, by an input of {len(short.data)} bytes, which is kept in {keep(name, short)}\n{short.words}"
    )


if __name__ == "__main__":
    main()
