"""What several benchmarks share; no benchmark itself."""
