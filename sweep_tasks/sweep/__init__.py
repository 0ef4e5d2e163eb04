"""The sweep: horizon, rules, steps, and the in-process engine."""
