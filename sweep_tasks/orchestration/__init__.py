"""What the DAG files import: operators, pools, params, alerts."""
