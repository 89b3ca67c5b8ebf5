"""Holds what all commands of the command line have in common: options, exit statuses, what they print, which API server they ask.

Code of one command alone belongs to that command's room.
"""
