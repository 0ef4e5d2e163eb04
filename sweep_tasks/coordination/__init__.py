"""Coordination between processes: timestamps, leases of open transactions, thresholds and clock samples."""
