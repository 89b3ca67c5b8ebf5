"""Failures that keep a command of `railnet train` from being done. These are no errors of the node, which have codes of CNI."""


class TrainFailed(Exception):
    """The command cannot be done; the message says why, and what to do."""
