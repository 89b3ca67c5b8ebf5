"""The admission helper: gives training pods what they need for their rails, and touches nothing else.

One review reads `review` → `training.recogniser` → `decision` → `patch`: bytes in, bytes out, no question to anybody. Whoever
serves it brings HTTPS and the namespace's label; none of that is here. `explain` says the same in words, for one who asks.
"""
