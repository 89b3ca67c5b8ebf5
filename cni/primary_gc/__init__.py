"""Reclaims what dead containers left of the primary network: addresses, flannel's state files, cached results, veths.

`state_files` parses the files, `liveness` decides which containers are dead, `collector` reclaims what is left of them.
"""
