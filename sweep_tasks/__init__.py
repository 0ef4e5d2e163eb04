"""Sweeping for multi-version key-value stores: what sweeping means, without Spark."""
