"""What is inside Cassandra's files: readers, statistics and what was measured."""
