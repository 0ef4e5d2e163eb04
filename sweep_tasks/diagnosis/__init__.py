"""Diagnosis of a store: status, doctor and explain."""
