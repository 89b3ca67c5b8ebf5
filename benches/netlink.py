"""One request about a link, by the attach path's own module and by pyroute2; run by `scripts/bench netlink`.

docs/decisions/0035 says what follows. Every request is opened, asked and closed by itself, as an ADD does it in a pod's network
namespace, and they take turns, so that what else the machine does slows all of them. The import is of a new interpreter.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from pyroute2 import IPRoute, IPRSocket

from railnet.kernel.netlink.minimal_pyroute2 import classes
from railnet.kernel.netlink.protocol import encode
from railnet.kernel.netlink.rtnetlink import NEWLINK, links

ROUNDS = 300
IMPORTS = 15
_LO = 1
_IMPORT = "import time\nbegan = time.perf_counter()\nimport {0}\nprint(time.perf_counter() - began)"
_MEMORY = "import {0}\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"
_DAEMON = (
    "asyncio, grpc.aio, railnet.kernel.netlink.rtnetlink, logging, pyudev, yaml"  # what it has imported in any case
)
OURS, SOCKET, ROUTE = "railnet.kernel.netlink.rtnetlink", "pyroute2's IPRSocket", "pyroute2's IPRoute"
MESSAGES = "railnet.kernel.netlink.minimal_pyroute2"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench netlink", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"requests of each kind ({ROUNDS})")
    arguments = parser.parse_args()
    figures = requests(arguments.rounds) | imports()
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, (median, unit) in figures.items():
        print(f"{name:<112}{median:>10.2f} {unit}")


def requests(rounds: int) -> dict[str, tuple[float, str]]:
    """Return the median milliseconds of each request."""
    asked: dict[str, Callable[[], object]] = {
        f"open and close: {OURS}": own_opened,
        f"open and close: {SOCKET}": socket_opened,
        f"open and close: {ROUTE}": route_opened,
        f"open, read one link: {OURS}": own_read,
        f"open, read one link: {OURS} and {MESSAGES}": messages_read,
        f"open, read one link: {ROUTE}": route_read,
        f"open, list links: {OURS}": own_listed,
        f"open, list links: {ROUTE}": route_listed,
        f"open, a move that is refused: {OURS}": own_moved,
        f"open, a move that is refused: {ROUTE}": route_moved,
    }
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, ask in asked.items():
            began = time.perf_counter()
            ask()
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: (statistics.median(each), "ms") for name, each in times.items()}


def imports() -> dict[str, tuple[float, str]]:
    """Return what two imports cost an interpreter that has the daemon's other libraries: time and memory, medians."""
    figures: dict[str, tuple[float, str]] = {}
    for name in ("pyroute2", MESSAGES):
        seconds, kibibytes = [], []
        for _ in range(IMPORTS):
            seconds.append(float(run(f"import {_DAEMON}\n" + _IMPORT.format(name))))
            kibibytes.append(int(run(_MEMORY.format(f"{_DAEMON}, {name}"))) - int(run(_MEMORY.format(_DAEMON))))
        figures[f"import {name}: time"] = (statistics.median(seconds) * 1000, "ms")
        figures[f"import {name}: memory"] = (statistics.median(kibibytes) / 1024, "MiB")
    return figures


def run(program: str) -> str:
    """Return what a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def own_opened() -> None:
    """Open and close our own socket."""
    with links():
        pass


def socket_opened() -> None:
    """Open and close pyroute2's socket that needs no event loop."""
    with IPRSocket(groups=0, ext_ack=True):
        pass


def route_opened() -> None:
    """Open and close pyroute2's usual interface."""
    with IPRoute():
        pass


def own_read() -> None:
    """Read a link with our own module."""
    with links() as node:
        node.facts(_LO)


def messages_read() -> None:
    """Read a link with our own socket, and decode the answer with pyroute2's class."""
    with links() as node:
        classes.ifinfmsg(encode(NEWLINK, 0, 0, node.answer(_LO))).decode()


def route_read() -> None:
    """Read a link with pyroute2's usual interface."""
    with IPRoute() as route:
        tuple(route.link("get", index=_LO))


def own_listed() -> None:
    """List links with our own module."""
    with links() as node:
        node.listed()


def route_listed() -> None:
    """List links with pyroute2's usual interface."""
    with IPRoute() as route:
        tuple(route.get_links())


def own_moved() -> None:
    """Send a move of a link that is not there, with our own module."""
    with links() as node, suppress(OSError):
        node.move(0x7FFFFFFF, 0, "net1")


def route_moved() -> None:
    """Send the same with pyroute2's usual interface."""
    with IPRoute() as route, suppress(Exception):
        route.link("set", index=0x7FFFFFFF, net_ns_fd=0, ifname="net1")


if __name__ == "__main__":
    main()
