"""Stores: one contract, and its implementations in memory, on SQLite and on Cassandra."""

from sweep_tasks.store.contract import Change, Page, Store, every
from sweep_tasks.store.location import StoreLocation, absolute_url, initialise_store

__all__ = ["Change", "Page", "Store", "StoreLocation", "absolute_url", "every", "initialise_store"]
