"""`railnet doctor`: looks at this node, or at a pod of the cluster, and shows what is wrong as a table or as JSON."""

import json
from collections.abc import Sequence

from railnet.doctor import checks, doctor_table
from railnet.doctor.finding import Finding
from railnet.doctor.gathering import Places, gather


def show(places: Places, *, as_json: bool) -> bool:
    """Print the findings; return whether none of them is an error.

    Raises:
        OSError: the node cannot be looked at.
    """
    return report(checks.findings(gather(places)), as_json=as_json)


def report(found: Sequence[Finding], *, as_json: bool) -> bool:
    """Print findings; return whether none of them is an error."""
    if as_json:
        print(json.dumps(doctor_table.as_json(found), indent=1))
    else:
        print("\n".join(doctor_table.rendered(found)))
    return not any(one.kind.severity == "error" for one in found)
