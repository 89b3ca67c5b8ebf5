"""A pod as the API server reported it, for all reductions of it: parsed once and recognised once."""

from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.objects.pod import Pod, parse


class ReportedPod:
    """A pod, with what several reductions ask for. One thread uses it.

    Attributes:
        document: the pod as the API server reports it.
        pod: the pod parsed; None if it cannot be. The webhook refuses such a pod: it was created without the webhook, or changed since.
    """

    __slots__ = ("_member", "_recognised", "document", "pod")

    def __init__(self, document: dict[str, Any]) -> None:
        """Parse a pod."""
        self.document = document
        self.pod: Pod | None
        try:
            self.pod = parse(document)
        except Misconfigured:
            self.pod = None
        self._member: RecognisedPod | None = None
        self._recognised = self.pod is None

    @property
    def member(self) -> RecognisedPod | None:
        """Its place in its training job; None if it is of none, or says of it what the webhook refuses."""
        if self.pod is not None and not self._recognised:
            try:
                self._member = recognise(self.pod)
            except Misconfigured:
                self._member = None
            self._recognised = True
        return self._member
