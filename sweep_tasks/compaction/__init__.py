"""Which files hold many tombstones, and what compacting them is worth."""
