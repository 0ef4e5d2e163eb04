"""The store that users really run: Cassandra 5, with as many nodes and copies as its operator likes."""
