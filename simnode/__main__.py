"""`python -m simnode exec [--cgroups] -- COMMAND…`: run a command in the namespaces of a simulated node.

This module is only the command line; `linux.namespaces` makes the namespaces.
"""

import sys

from simnode.linux import namespaces

_USAGE = "usage: python -m simnode exec [--cgroups] -- COMMAND [ARGUMENT…]\n"


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status; 2 for wrong usage, 4 if the kernel refuses namespaces."""
    match arguments:
        case ["exec", "--", *command] if command:
            cgroups = False
        case ["exec", "--cgroups", "--", *command] if command:
            cgroups = True
        case _:
            sys.stderr.write(_USAGE)
            return 2
    try:
        return namespaces.run(command, cgroups=cgroups)
    except namespaces.NamespacesRefused as refusal:
        sys.stderr.write(f"simnode: {refusal}\n")
        return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
