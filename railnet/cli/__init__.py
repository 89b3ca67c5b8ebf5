"""What all commands of the command line have in common: options, exit statuses, what they print, which API server they ask.

What only one command does belongs to that command's room.
"""
