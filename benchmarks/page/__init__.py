"""The page of benchmark results, `docs/benchmarks.md`, and its plots. Every figure comes from a recorded result."""
