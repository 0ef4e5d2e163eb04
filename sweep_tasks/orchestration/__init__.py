"""What the DAG files import: operators, forms and pools."""
