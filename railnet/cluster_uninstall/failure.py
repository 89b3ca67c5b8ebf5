"""The failure that ends the command. It is no error of the node, which has a code of CNI."""


class NotUninstalled(Exception):
    """Railnet is not away yet. The message says what is left, and what to do."""
