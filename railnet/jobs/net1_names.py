"""The DNS names that a job's pods have on net1: `<pod>.<job>-net1.<namespace>.svc`, and on request `<task>.<namespace>.svc`.

The webhook writes these names into TF_CONFIG, and the controllers make the Service in which they resolve. So both compute them here.
"""

import re
from collections.abc import Iterable

from railnet.errors import Misconfigured
from railnet.jobs.name_truncation import digested, shortened

_SUFFIX = "-net1"
_LABEL_LENGTH = 63  # RFC 1035 label: k8s.io/apimachinery/pkg/util/validation, DNS1035LabelMaxLength
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def service(job: str) -> str:
    """Return the name of the headless Service in which a job's pods have their names on net1; a long name is shortened.

    Raises:
        Misconfigured: a Service's name cannot begin with the job's name.
    """
    if _SERVICE.fullmatch(job) is None:
        raise Misconfigured(
            f"the job's name {job!r:.80} cannot be a Service's, so its pods cannot have names on net1; rename the job"
        )
    return shortened(job, _LABEL_LENGTH - len(_SUFFIX)) + _SUFFIX


def task_service(job: str, role: str, rank: Iterable[int]) -> str:
    """Return the name of the headless Service of one task, such as `mnist-worker-0`; a long name is shortened.

    Raises:
        Misconfigured: a Service cannot have that name.
    """
    name = "-".join((job, role, *map(str, rank)))
    if _SERVICE.fullmatch(name) is None:
        raise Misconfigured(
            f"the task's name {name!r:.80} cannot be a Service's, so the task cannot have a name on net1; rename the job or the role"
        )
    return shortened(name, _LABEL_LENGTH)


def hostname(pod: str) -> str:
    """Return the DNS label that a pod has in its job's Service: its name, if that is one label; else a part of it and a digest.

    A label with dots would have no record (github.com/coredns/coredns/issues/6607).
    """
    return digested(pod, _LABEL_LENGTH).replace(".", "-") if "." in pod else shortened(pod, _LABEL_LENGTH)
