"""How much of a query was not held: its tokens beyond the longest state on its path.

Of a hit that is what the caller has to compute. Of a miss it is the query beyond a state that could
not be served (of another kind, or out of service), or all of it.
"""

from __future__ import annotations

from typing import Final

from app.engine.histograms import Histogram
from app.engine.misses import MissReason

HIT: Final = "hit"
GAP_TOKENS: Final = Histogram(
    "gap_tokens",
    (HIT, *(reason.value for reason in MissReason)),
    (0, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144),
)
