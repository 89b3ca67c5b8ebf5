"""A pod as the API server reported it, for all reductions of it: parsed once and recognised once."""

from functools import cached_property
from typing import Any

from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.objects.pod import Pod, parse
from railnet.vf.errors import Misconfigured


class ReportedPod:
    """A pod, with what several reductions ask for: the first that asks has it computed. One thread uses it."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Take a pod as the API server reports it."""
        self.document = document

    @cached_property
    def pod(self) -> Pod | None:
        """The pod parsed; None if it cannot be. The webhook refuses such a pod: it was created without the webhook, or changed since."""
        try:
            return parse(self.document)
        except Misconfigured:
            return None

    @cached_property
    def member(self) -> RecognisedPod | None:
        """Its place in its training job; None if it is of none, or says of it what the webhook refuses."""
        try:
            return None if self.pod is None else recognise(self.pod, lambda _: False)
        except Misconfigured:
            return None
