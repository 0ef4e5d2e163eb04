"""Real servers on this machine: Cassandra, Spark, PostgreSQL and Airflow."""
