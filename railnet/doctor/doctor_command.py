"""`railnet doctor` shows what is wrong with this node, or with a pod or a cluster."""

from collections.abc import Sequence

from railnet.cli.output import Output
from railnet.doctor import doctor_table
from railnet.doctor.finding_kinds import Finding


def report(findings: Sequence[Finding], output: Output) -> bool:
    """Print findings; return whether none of them is an error."""
    output.show(doctor_table.as_json(findings), doctor_table.rendered(findings), doctor_table.WORDS)
    return not any(finding.kind.severity == "error" for finding in findings)
