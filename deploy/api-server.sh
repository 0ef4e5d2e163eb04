#!/bin/sh
# Start Airflow's API server with the passwords of the environment. SimpleAuthManager reads passwords from a file that it
# opens for writing. So the file is created here, inside the container, and is removed with the container.
set -eu
umask 077

python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"], "sweepflow": os.environ["AIRFLOW_TASKS_PASSWORD"]}))' \
  > "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
unset AIRFLOW_ADMIN_PASSWORD AIRFLOW_TASKS_PASSWORD

exec airflow api-server --port 8080
