"""The webhook's own certificates: made, kept in a Secret, trusted by the API server, renewed in time.

`renewal` decides, `keeper` acts, through `cluster`; `authority` makes and signs; `kept` is the Secret's form, `trust` the webhook
configuration's. `folder` is the other way: somebody else keeps them in files. docs/decisions/0031 says why so.
"""
