"""The store on Cassandra 5, with any number of nodes and replicas."""
