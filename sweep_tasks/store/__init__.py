"""Where bytes live: one contract, and the stores that keep it."""

from sweep_tasks.store.contract import Change, Page, Store, every
from sweep_tasks.store.location import StoreLocation, from_anywhere, initialise_store

__all__ = ["Change", "Page", "Store", "StoreLocation", "every", "from_anywhere", "initialise_store"]
