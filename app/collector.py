"""Keep the garbage collector away from what stays as long as the process.

A full collection looks at every object there is, and nothing else runs meanwhile. What was imported and opened
for serving is 150,000 objects that never go: they cost 75 to 100 ms each time, every few seconds under load
(`python -m bench.overload`: the p99 of lookups was 80 ms with them and is 26 ms without).
"""

from __future__ import annotations

import gc
from itertools import count

_apps = count()


def leave_out_what_is_there() -> None:
    """Collect once, and never look again at what is left. To be called when a process can serve."""
    if next(_apps):
        gc.unfreeze()  # of the app that this one follows, much has gone
    gc.collect()
    gc.freeze()
