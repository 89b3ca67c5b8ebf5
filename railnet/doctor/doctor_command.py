"""`railnet doctor`: looks at this node, and shows what is wrong as a table or as JSON."""

import json

from railnet.doctor import checks, doctor_table
from railnet.doctor.gathering import Places, gather


def show(places: Places, *, as_json: bool) -> bool:
    """Print the findings; return whether none of them is an error.

    Raises:
        OSError: the node cannot be looked at.
    """
    found = checks.findings(gather(places))
    if as_json:
        print(json.dumps(doctor_table.as_json(found), indent=1))
    else:
        print("\n".join(doctor_table.rendered(found)))
    return not any(one.kind.severity == "error" for one in found)
