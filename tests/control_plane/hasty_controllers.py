"""`railnet controllers` that wait for seconds where they wait for half a minute, for a minute where they wait for ten, and lead on for a
minute without an API server.

A test starts that anew, which takes longer than a Lease on a machine that is busy.
"""

from functools import partial

from railnet.__main__ import main
from railnet.apiserver import lease
from railnet.controllers import informer
from railnet.gangs import actions, evictions, planning

STUCK_SECONDS = 2.0
MEMBER_SECONDS = 60.0

if __name__ == "__main__":
    evictions.STUCK_SECONDS = STUCK_SECONDS
    actions.MEMBER_SECONDS = planning.MEMBER_SECONDS = MEMBER_SECONDS
    informer.BACKOFF = informer.BACKOFF._replace(longest_seconds=1.0)
    lease.lead = partial(lease.lead, seconds=lease.Seconds(lease=90.0, renew=60.0))
    main()
