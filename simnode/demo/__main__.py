"""`python -m simnode.demo [--json]`, which `scripts/demo` runs.

Exit status: 0 if all checks passed, 1 if a check failed or something is left over, 3 if the CNI plugins are missing.
"""

import argparse
import sys

from railnet.errors import Misconfigured
from simnode.demo import program

_MISCONFIGURED = 3


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Run pods on two simulated nodes, ping over every network, and show what is left over.",
        epilog="scripts/demo --kubernetes --help is about a Kubernetes cluster of two nodes.",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    # The part that runs in the namespaces of the simulated nodes.
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        return program.run_inside() if arguments.inside else program.run(as_json=arguments.json)
    except Misconfigured as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        return _MISCONFIGURED


if __name__ == "__main__":
    sys.exit(main())
