"""`railnet doctor` shows what is wrong with this node, or with a pod or a cluster."""

from collections.abc import Sequence

from railnet.cli.output import Output
from railnet.doctor import doctor_table
from railnet.doctor.finding import Finding


def report(found: Sequence[Finding], output: Output) -> bool:
    """Print findings; return whether none of them is an error."""
    output.show(doctor_table.as_json(found), doctor_table.rendered(found), doctor_table.WORDS)
    return not any(one.kind.severity == "error" for one in found)
