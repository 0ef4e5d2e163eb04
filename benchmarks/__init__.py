"""Benchmarks: each module has a `measure()` that returns plain numbers. A ratio compares two things that are measured
alternately in one run, because the speed of a machine changes from minute to minute."""
