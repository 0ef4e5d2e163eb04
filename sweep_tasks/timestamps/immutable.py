"""The immutable timestamp: no open transaction started below it, and none ever will."""

from __future__ import annotations

from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.service import TimestampService


def immutable_timestamp(timestamps: TimestampService, leases: Leases) -> int:
    """The least of a fresh timestamp taken first and the leases read afterwards.

    A lease that is not among those read was written after the read, and its transaction starts later still, above
    our fresh timestamp. The other way round, a transaction could take its lease after we looked and its start before
    our fresh timestamp, and we would sweep what it reads.
    """
    fresh = timestamps.fresh()
    return min([fresh, *(lease.ts for lease in leases.open())])
