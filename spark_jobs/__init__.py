"""Spark jobs: one file each that is a readable pipeline, and the parts they share."""
