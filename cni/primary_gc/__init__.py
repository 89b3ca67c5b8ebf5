"""What dead containers left of the primary network: addresses, flannel's states, cached results, veths.

`books` reads what there is, `dead` decides, `collector` acts.
"""
