"""A real Cassandra, started once and only if a test asks for it."""

from tests.support.cassandra import cassandra_cluster

__all__ = ["cassandra_cluster"]
