"""Exports of tables: full exports, increments and their files."""
