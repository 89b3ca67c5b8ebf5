"""Failures that keep a validation from being done."""


class ValidateFailed(Exception):
    """The cluster cannot be validated; the message says why, and what to do."""
