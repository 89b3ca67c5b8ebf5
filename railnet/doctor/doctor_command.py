"""`railnet doctor` shows what is wrong with this node, or with a pod or a cluster, as a table or as JSON."""

import json
from collections.abc import Sequence

from railnet.doctor import doctor_table
from railnet.doctor.finding import Finding


def report(found: Sequence[Finding], *, as_json: bool) -> bool:
    """Print findings; return whether none of them is an error."""
    if as_json:
        print(json.dumps(doctor_table.as_json(found), indent=1))
    else:
        print("\n".join(doctor_table.rendered(found)))
    return not any(one.kind.severity == "error" for one in found)
