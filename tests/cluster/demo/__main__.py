"""`python -m tests.cluster.demo`, which `scripts/demo --kubernetes` runs.

Exit status: 0 if all steps have succeeded and nothing is left over, 1 if not, 3 if another demo runs, 130 after Ctrl-C.
"""

import argparse
import socket
import sys
from pathlib import Path

from railnet.errors import Misconfigured
from tests.cluster.demo import inside, outside

_MISCONFIGURED = 3


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(prog="scripts/demo --kubernetes")  # scripts/demo has the help
    parser.add_argument("--kubernetes", action="store_true")  # scripts/demo has read it
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--folder", type=Path, required=True)
    # The part that runs in the namespaces, with the descriptor of the socket for kubectl if the cluster stays.
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--listener", type=int)
    arguments = parser.parse_args()
    if arguments.inside:
        inside.run(arguments.folder, None if arguments.listener is None else socket.socket(fileno=arguments.listener))
    try:
        return outside.run(arguments.folder, keep=arguments.keep)
    except Misconfigured as error:
        sys.stderr.write(f"scripts/demo: {error}\n")
        return _MISCONFIGURED


if __name__ == "__main__":
    sys.exit(main())
