"""Failures that keep a validation from being done."""


class ValidateFailed(Exception):
    """The cluster cannot be validated; the message says why, and what to do."""


class JobWaits(Exception):
    """A job wants what the run holds, so the run ends; the message names the job's pod."""
