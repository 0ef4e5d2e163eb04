"""The page inside the Airflow UI: what is behind, who holds it up, what to press."""
