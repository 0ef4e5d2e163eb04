"""The page in the Airflow UI."""
