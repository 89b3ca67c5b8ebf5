"""`python -m simnode exec -- COMMAND…`: run a command in the namespaces of a simulated node.

Only the command line; the namespaces are made in `namespaces`.
"""

import sys

from simnode import namespaces

_USAGE = "usage: python -m simnode exec -- COMMAND [ARGUMENT…]\n"


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status; 2 for wrong usage, 4 where the kernel refuses namespaces."""
    match arguments:
        case ["exec", "--", _, *_]:
            command = arguments[2:]
        case _:
            sys.stderr.write(_USAGE)
            return 2
    try:
        return namespaces.run(command)
    except namespaces.NamespacesRefused as refusal:
        sys.stderr.write(f"simnode: {refusal}\n")
        return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
