"""The admission helper: gives training pods what they need for their rails, and touches nothing else.

One review reads `review` → `training.recogniser` → `decision` → `patch`: bytes in, bytes out, and no request to another server. `server`
brings HTTPS and the namespace's label, `certificates` what it shows. `explain` says the same in words.
"""
