"""The compose file refers only to things that exist, and every check can fail.

No container engine is needed: the file is compared with the schema of compose files, the project, and the Airflow,
Spark and Cassandra of the tests, which are the versions that the containers use.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.deployment import addresses, checks, image, nodes, programs
from tests.deployment.breakages import BREAKAGES, DOCKERFILE_BREAKAGES, Change, Check
from tests.deployment.compose import DOCKERFILE, Deployment, generated_variables, installed_airflow, load
from tests.deployment.node_breakages import NODE_BREAKAGES

ALL_BREAKAGES = BREAKAGES + NODE_BREAKAGES
CHECKS: list[Check] = [
    checks.the_schema_is_kept,
    checks.every_variable_is_generated_and_used,
    checks.a_missing_variable_stops_the_start,
    checks.no_secret_is_written_down,
    checks.every_file_exists,
    checks.every_volume_and_network_is_declared_and_used,
    checks.every_image_has_an_exact_version,
    checks.every_pulled_image_may_be_named_by_its_digest,
    checks.our_image_is_built_once_and_never_pulled,
    checks.services_have_health_checks_and_restart,
    checks.dependencies_of_services_can_be_met,
    checks.every_airflow_setting_is_known,
    checks.every_setting_of_ours_is_known,
    checks.every_program_of_ours_has_the_same_settings,
    checks.folders_of_volumes_are_ours_in_the_image,
    checks.dags_are_mounted_where_airflow_reads_them,
    checks.the_connections_of_the_dag_are_given,
    checks.every_user_has_a_password,
    checks.workers_can_call_the_driver_back,
    checks.concurrent_sweeps_fit_into_the_cluster,
    programs.every_command_exists,
    addresses.every_address_is_listened_at,
    addresses.every_published_port_is_listened_at,
    addresses.no_two_services_publish_the_same_port,
    addresses.only_this_machine_sees_the_ports,
    nodes.every_node_is_of_the_version_that_tests_run,
    nodes.every_setting_of_a_node_is_known,
    nodes.nodes_make_one_cluster,
    nodes.nodes_join_one_after_the_other,
    nodes.every_node_keeps_its_data_to_itself,
    nodes.every_node_has_memory_beyond_its_heap,
    nodes.the_store_is_on_the_nodes_of_this_file,
    nodes.services_that_open_the_store_wait_for_it,
    nodes.services_that_open_the_store_get_its_secrets,
    image.the_base_has_an_exact_version,
    image.the_python_is_the_one_configured_for_workers,
    image.every_copied_file_exists_and_is_sent,
    image.every_package_is_pinned,
    image.nothing_runs_as_root,
]


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    """Read the files once; a test that changes something changes a copy."""
    return Deployment(load(), DOCKERFILE.read_text(), generated_variables(), installed_airflow())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_compose_file_is_right(deployment: Deployment, check: Check) -> None:
    assert check(deployment) == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_compose_file_is_right_with_images_by_digest(deployment: Deployment, check: Check) -> None:
    by_digest = {name: f"{image}@sha256:{'0' * 64}" for name, image in checks.fetched_images(deployment).items()}
    pinned = replace(deployment, variables={**deployment.variables, **by_digest})
    assert check(pinned) == []
    assert set(by_digest.values()) - {
        pinned.services[name].definition["image"] for name in ("postgres", "cassandra-1")
    } == {by_digest["PYTHON_IMAGE"]}


def test_a_tag_or_a_digest_that_is_cut_off_does_not_pin(deployment: Deployment) -> None:
    cut_off = replace(deployment, variables={**deployment.variables, "POSTGRES_IMAGE": "postgres:17.6@sha256:00"})
    assert checks.every_image_has_an_exact_version(cut_off) != []


def test_every_promised_property_is_checked(deployment: Deployment) -> None:
    assert set(deployment.services) == {
        "postgres",
        "cassandra-1",
        "cassandra-2",
        "cassandra-3",
        "store-init",
        "airflow-init",
        "airflow-apiserver",
        "airflow-scheduler",
        "airflow-dag-processor",
        "airflow-triggerer",
        "spark-master",
        "spark-worker",
    }
    assert deployment.services["spark-worker"].definition["deploy"]["replicas"] == "2"


@pytest.mark.parametrize(
    ("check", "problem", "change"),
    ALL_BREAKAGES,
    ids=[f"{check.__name__}-{reported}" for check, reported, _ in ALL_BREAKAGES],
)
def test_faults_in_the_compose_file_are_found(
    deployment: Deployment, check: Check, problem: str, change: Change
) -> None:
    broken = copy.deepcopy(deployment.document)
    change(broken["services"])
    reported = check(replace(deployment, document=broken))
    assert any(problem in each for each in reported), reported


@pytest.mark.parametrize(
    ("check", "problem", "text", "instead"), DOCKERFILE_BREAKAGES, ids=[each[1] for each in DOCKERFILE_BREAKAGES]
)
def test_faults_in_the_dockerfile_are_found(
    deployment: Deployment, check: Check, problem: str, text: str, instead: str
) -> None:
    assert text in deployment.dockerfile
    reported = check(replace(deployment, dockerfile=deployment.dockerfile.replace(text, instead)))
    assert any(problem in each for each in reported), reported


def test_every_check_fails_for_some_fault() -> None:
    seen = {check for check, *_ in ALL_BREAKAGES} | {check for check, *_ in DOCKERFILE_BREAKAGES}
    assert set(CHECKS) - seen == set()
