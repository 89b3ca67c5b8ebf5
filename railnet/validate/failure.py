"""Failures that keep a validation from being done."""


class ValidateFailed(Exception):
    """The cluster cannot be validated; the message says why, and what to do."""


class JobComes(Exception):
    """A job waits for what the run holds, or is on a node that is tried, so the run ends; the message names the job's pod."""
