"""Spark jobs: one file for each, a readable DataFrame pipeline over `sweep_tasks`."""
