"""The webhook's certificates: made, stored in a Secret, trusted by the API server, renewed in time.

`renewal` decides, `keeper` acts on the objects of `cluster`, `own` repeats that while the server runs. `authority` makes and signs
certificates; `kept` reads and writes the Secret's entries, `trust` the webhook configuration's. `folder` is the alternative: an
administrator's own certificates in files. docs/decisions/0031 says why.
"""
