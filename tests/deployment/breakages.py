"""Errors in the compose file and Dockerfile, each with the check that must detect it and the message."""

from __future__ import annotations

from collections.abc import Callable

from tests.deployment import addresses, checks, image, programs
from tests.deployment.compose import Deployment, Document

Check = Callable[[Deployment], list[str]]
Change = Callable[[Document], object]
BREAKAGES: list[tuple[Check, str, Change]] = [
    (checks.the_schema_is_kept, "healthchek", lambda s: s["postgres"].update(healthchek={})),
    (checks.the_schema_is_kept, "restart", lambda s: s["postgres"].update(restart=3)),
    (
        checks.every_variable_is_generated_and_used,
        "UNSET is used but not generated",
        lambda s: s["postgres"]["environment"].update(POSTGRES_DB="${UNSET:?}"),
    ),
    (
        checks.every_variable_is_generated_and_used,
        "SPARK_WORKERS is generated but not used",
        lambda s: s["spark-worker"].pop("deploy"),
    ),
    (
        checks.a_missing_variable_stops_the_start,
        "AIRFLOW_PORT may be missing",
        lambda s: s["airflow-apiserver"].update(ports=["127.0.0.1:${AIRFLOW_PORT:-8080}:8080"]),
    ),
    (
        checks.no_secret_is_written_down,
        "postgres: POSTGRES_PASSWORD",
        lambda s: s["postgres"]["environment"].update(POSTGRES_PASSWORD="hunter2"),  # noqa: S106
    ),
    (
        checks.no_secret_is_written_down,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        lambda s: s["airflow-init"]["environment"].update(
            AIRFLOW__DATABASE__SQL_ALCHEMY_CONN="postgresql+psycopg2://airflow:airflow@postgres:5432/airflow"
        ),
    ),
    (
        checks.every_file_exists,
        "./pipelines does not exist",
        lambda s: s["airflow-scheduler"]["volumes"].append("./pipelines:/x"),
    ),
    (
        checks.every_file_exists,
        "Containerfile",
        lambda s: s["airflow-init"]["build"].update(dockerfile="Containerfile"),
    ),
    (
        checks.every_file_exists,
        ".env.alerts",
        lambda s: s["airflow-scheduler"].update(env_file=[{"path": ".env.alerts"}]),
    ),
    (
        checks.every_volume_and_network_is_declared_and_used,
        "volumes: data is not declared",
        lambda s: s["postgres"].update(volumes=["data:/var/lib/postgresql/data"]),
    ),
    (
        checks.every_volume_and_network_is_declared_and_used,
        "volumes: postgres is not used",
        lambda s: s["postgres"].pop("volumes"),
    ),
    (
        checks.every_volume_and_network_is_declared_and_used,
        "networks: inner is not declared",
        lambda s: s["postgres"].update(networks=["inner"]),
    ),
    (
        checks.every_image_has_an_exact_version,
        "postgres:latest",
        lambda s: s["postgres"].update(image="postgres:latest"),
    ),
    (checks.every_image_has_an_exact_version, "postgres:17 ", lambda s: s["postgres"].update(image="postgres:17")),
    (checks.every_image_has_an_exact_version, "image postgres ", lambda s: s["postgres"].update(image="postgres")),
    (
        checks.every_image_has_an_exact_version,
        "should be sweepflow:",
        lambda s: s["airflow-init"].update(image="sweepflow:9.9.9"),
    ),
    (
        checks.every_pulled_image_may_be_named_by_its_digest,
        "postgres:17.6-bookworm has no variable",
        lambda s: s["postgres"].update(image="postgres:17.6-bookworm"),
    ),
    (
        checks.every_pulled_image_may_be_named_by_its_digest,
        "is not what Compose passes on",
        lambda s: s["airflow-init"]["build"].pop("args"),
    ),
    (
        checks.our_image_is_built_once_and_never_pulled,
        "spark-worker",
        lambda s: s["spark-worker"].update(pull_policy="always"),
    ),
    (
        checks.our_image_is_built_once_and_never_pulled,
        "is built by",
        lambda s: s["spark-master"].update(build={"context": ".", "dockerfile": "deploy/Dockerfile"}),
    ),
    (
        checks.services_have_health_checks_and_restart,
        "airflow-triggerer: no health check",
        lambda s: s["airflow-triggerer"].pop("healthcheck"),
    ),
    (
        checks.services_have_health_checks_and_restart,
        "spark-worker: is not started again",
        lambda s: s["spark-worker"].pop("restart"),
    ),
    (
        checks.dependencies_of_services_can_be_met,
        "spark-boss, which does not exist",
        lambda s: s["spark-worker"].update(depends_on={"spark-boss": {"condition": "service_started"}}),
    ),
    (
        checks.dependencies_of_services_can_be_met,
        "postgres to be healthy, which has no health check",
        lambda s: s["postgres"].pop("healthcheck"),
    ),
    (
        checks.dependencies_of_services_can_be_met,
        "does not fit airflow-init",
        lambda s: s["airflow-init"].update(restart="unless-stopped"),
    ),
    (
        checks.dependencies_of_services_can_be_met,
        "does not fit spark-master",
        lambda s: s["spark-worker"]["depends_on"].update(
            {"spark-master": {"condition": "service_completed_successfully"}}
        ),
    ),
    (
        checks.every_airflow_setting_is_known,
        "AIRFLOW__WEBSERVER__WORKERS",
        lambda s: s["airflow-apiserver"]["environment"].update(AIRFLOW__WEBSERVER__WORKERS="2"),
    ),
    (
        checks.every_setting_of_ours_is_known,
        "SWEEPFLOW_SHARDES",
        lambda s: s["spark-worker"]["environment"].update(SWEEPFLOW_SHARDES="4"),
    ),
    (
        checks.every_program_of_ours_has_the_same_settings,
        "spark-worker: SWEEPFLOW_CONFIG",
        lambda s: s["spark-worker"].pop("volumes"),
    ),
    (
        checks.every_program_of_ours_has_the_same_settings,
        "airflow-scheduler: SWEEPFLOW_CONFIG",
        lambda s: s["airflow-scheduler"]["environment"].update(SWEEPFLOW_CONFIG="/etc/sweepflow/other.toml"),
    ),
    (
        checks.folders_of_volumes_are_ours_in_the_image,
        "/data is not created",
        lambda s: s["spark-worker"].update(volumes=["airflow-logs:/data"]),
    ),
    (
        checks.dags_are_mounted_where_airflow_reads_them,
        "airflow-dag-processor: ./dags",
        lambda s: s["airflow-dag-processor"]["volumes"].remove("./dags:/opt/airflow/dags:ro"),
    ),
    (
        checks.no_secret_is_written_down,
        "AIRFLOW_CONN_MAIL",
        lambda s: s["airflow-init"]["environment"].update(AIRFLOW_CONN_MAIL='{"login":"me","password":"hunter2"}'),
    ),
    (
        checks.the_connections_of_the_dag_are_given,
        "airflow-scheduler: connection spark_default",
        lambda s: s["airflow-scheduler"]["environment"].pop("AIRFLOW_CONN_SPARK_DEFAULT"),
    ),
    (
        checks.every_user_has_a_password,
        "user eve",
        lambda s: s["airflow-apiserver"]["environment"].update(AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS="eve:op"),
    ),
    (
        checks.concurrent_sweeps_fit_into_the_cluster,
        "need 16 cores",
        lambda s: s["spark-master"]["environment"].update(SPARK_MASTER_OPTS="-Dspark.deploy.defaultCores=8"),
    ),
    (
        checks.workers_can_call_the_driver_back,
        "airflow-scheduler",
        lambda s: s["airflow-scheduler"]["environment"].pop("SPARK_LOCAL_HOSTNAME"),
    ),
    (
        programs.every_command_exists,
        "webserver",
        lambda s: s["airflow-scheduler"].update(command=["airflow", "webserver"]),
    ),
    (
        programs.every_command_exists,
        "has no option --parallel",
        lambda s: s["airflow-scheduler"].update(command=["airflow", "scheduler", "--parallel"]),
    ),
    (
        programs.every_command_exists,
        "can't be WorkerJob",
        lambda s: s["airflow-triggerer"]["healthcheck"].update(
            test=["CMD", "airflow", "jobs", "check", "--job-type", "WorkerJob"]
        ),
    ),
    (
        programs.every_command_exists,
        "org.apache.spark.deploy.Master is no class",
        lambda s: s["spark-master"].update(command=["spark-class", "org.apache.spark.deploy.Master"]),
    ),
    (
        programs.every_command_exists,
        "start.sh is not copied",
        lambda s: s["airflow-init"].update(command=["sh", "/opt/sweepflow/deploy/start.sh"]),
    ),
    (
        programs.every_command_exists,
        "sweepflow migrate is no command",
        lambda s: s["airflow-init"].update(command=["sweepflow", "migrate"]),
    ),
    (
        programs.every_command_exists,
        "sweepflow init has no option --all",
        lambda s: s["airflow-init"].update(command=["sweepflow", "init", "--all"]),
    ),
    (
        programs.every_command_exists,
        "spark-master: curl is not in the image",
        lambda s: s["spark-master"]["healthcheck"].update(test=["CMD", "curl", "http://127.0.0.1:8080"]),
    ),
    (
        programs.every_command_exists,
        "postgres: pg_ready",
        lambda s: s["postgres"]["healthcheck"].update(test=["CMD", "pg_ready"]),
    ),
    (
        programs.every_command_exists,
        "cassandra-1: cql",
        lambda s: s["cassandra-1"].update(healthcheck={"test": ["CMD", "cql"]}),
    ),
    (
        addresses.every_address_is_listened_at,
        "spark-worker: nothing listens at spark-master:7078",
        lambda s: s["spark-worker"]["command"].append("spark://spark-master:7078"),
    ),
    (
        addresses.every_address_is_listened_at,
        "nothing listens at spark-master:7077",
        lambda s: s["spark-master"].update(command=["spark-class", "--port", "7070"]),
    ),
    (
        addresses.every_address_is_listened_at,
        "airflow-scheduler: nothing listens at airflow-webserver:8080",
        lambda s: s["airflow-scheduler"]["environment"].update(
            AIRFLOW__CORE__EXECUTION_API_SERVER_URL="http://airflow-webserver:8080/execution/"
        ),
    ),
    (
        addresses.every_address_is_listened_at,
        "airflow-scheduler: nothing listens at 127.0.0.1:8974",
        lambda s: s["airflow-scheduler"]["environment"].pop("AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"),
    ),
    (
        addresses.every_address_is_listened_at,
        "nothing listens at localhost:8080",
        lambda s: s["airflow-apiserver"].update(ports=["127.0.0.1:9090:8080"]),
    ),
    (
        addresses.every_published_port_is_listened_at,
        "spark-master: publishes",
        lambda s: s["spark-master"].update(ports=["127.0.0.1:9090:4040"]),
    ),
    (
        addresses.no_two_services_publish_the_same_port,
        "port 8080 is published twice",
        lambda s: s["spark-master"].update(ports=["127.0.0.1:8080:8080"]),
    ),
    (
        addresses.only_this_machine_sees_the_ports,
        "postgres: publishes 5432:5432 to all machines",
        lambda s: s["postgres"].update(ports=["5432:5432"]),
    ),
]


DOCKERFILE_BREAKAGES: list[tuple[Check, str, str, str]] = [
    (
        image.the_base_has_an_exact_version,
        "python:3-slim is not pinned",
        "python:3.11.14-slim-bookworm",
        "python:3-slim",
    ),
    (image.the_base_has_an_exact_version, "no FROM", "FROM", "# FROM"),
    (image.the_python_is_the_one_configured_for_workers, "differ", "python:3.11.14", "python:3.12.3"),
    (image.every_copied_file_exists_and_is_sent, "jobs does not exist", "COPY spark_jobs", "COPY jobs"),
    (image.every_copied_file_exists_and_is_sent, "tests is not sent", "COPY spark_jobs", "COPY tests"),
    (image.every_package_is_pinned, "is not pinned", "--require-hashes", ""),
    (image.every_package_is_pinned, "is not pinned", "--no-build-isolation", ""),
    (image.every_package_is_pinned, "is not pinned", "--no-deps", ""),
    (image.nothing_runs_as_root, "root", "USER sweepflow", ""),
    (checks.folders_of_volumes_are_ours_in_the_image, "/opt/airflow/logs", "/opt/airflow/logs", ""),
    (programs.every_command_exists, "initialise.sh is not copied", "deploy/initialise.sh", ""),
]
