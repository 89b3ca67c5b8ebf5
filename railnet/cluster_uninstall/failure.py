"""The error that ends the command."""

from railnet.vf.errors import RailnetError


class NotUninstalled(RailnetError):
    """Railnet is not away yet. The message says what is left, and what to do."""
