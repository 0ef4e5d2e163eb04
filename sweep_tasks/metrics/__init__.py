"""Metrics: declared once, recorded by runs, and exported."""
