"""PFs, VFs, GUIDs, records and attachments as values, and the decisions about them.

Pure: no I/O, no clock, no log. Code that needs the kernel is in `kernel`.
"""
