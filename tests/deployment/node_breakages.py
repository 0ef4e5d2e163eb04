"""Errors in the Cassandra nodes of the compose file and in the services that use them."""

from __future__ import annotations

from tests.deployment import nodes
from tests.deployment.breakages import Change, Check


def _set_for(name: str, **variables: str) -> Change:
    """Change variables of one service. Nodes share theirs in the file, so the changed one gets a copy."""
    return lambda services: services[name].update(environment=services[name]["environment"] | variables)


NODE_BREAKAGES: list[tuple[Check, str, Change]] = [
    (
        nodes.every_node_is_of_the_version_that_tests_run,
        "cassandra-2: 4.1.9 is not the tested",
        lambda s: s["cassandra-2"].update(image="cassandra:4.1.9"),
    ),
    (
        nodes.every_setting_of_a_node_is_known,
        "cassandra-1: CASSANDRA_AUTHENTICATOR is ignored",
        _set_for("cassandra-1", CASSANDRA_AUTHENTICATOR="PasswordAuthenticator"),
    ),
    (
        nodes.every_setting_of_a_node_is_known,
        "CASSANDRA_START_RPC is no setting of Cassandra",
        _set_for("cassandra-1", CASSANDRA_START_RPC="true"),
    ),
    (
        nodes.every_setting_of_a_node_is_known,
        "names RackSnitch, which is no snitch",
        _set_for("cassandra-1", CASSANDRA_ENDPOINT_SNITCH="RackSnitch"),
    ),
    (
        nodes.every_setting_of_a_node_is_known,
        "CASSANDRA_DC needs the snitch",
        _set_for("cassandra-1", CASSANDRA_ENDPOINT_SNITCH="SimpleSnitch"),
    ),
    (
        nodes.nodes_make_one_cluster,
        "CASSANDRA_CLUSTER_NAME differs",
        _set_for("cassandra-3", CASSANDRA_CLUSTER_NAME="other"),
    ),
    (nodes.nodes_make_one_cluster, "CASSANDRA_SEEDS differs", _set_for("cassandra-3", CASSANDRA_SEEDS="cassandra-3")),
    (
        nodes.nodes_make_one_cluster,
        "seed cassandra-9 is no node",
        _set_for("cassandra-2", CASSANDRA_SEEDS="cassandra-9"),
    ),
    (
        nodes.nodes_join_one_after_the_other,
        "cassandra-2 and cassandra-3 join at the same time",
        lambda s: s["cassandra-3"].update(depends_on={"cassandra-1": {"condition": "service_healthy"}}),
    ),
    (
        nodes.nodes_join_one_after_the_other,
        "seed cassandra-1 waits",
        lambda s: s["cassandra-1"].update(depends_on={"cassandra-2": {"condition": "service_healthy"}}),
    ),
    (
        nodes.every_node_keeps_its_data_to_itself,
        "cassandra-1: is shared by",
        lambda s: s["cassandra-2"].update(volumes=["cassandra-1:/var/lib/cassandra"]),
    ),
    (
        nodes.every_node_keeps_its_data_to_itself,
        "cassandra-3: its data is on no volume",
        lambda s: s["cassandra-3"].update(volumes=["cassandra-3:/data"]),
    ),
    (
        nodes.every_node_has_memory_beyond_its_heap,
        "cassandra-1: its memory has no limit",
        lambda s: s["cassandra-1"].pop("mem_limit"),
    ),
    (
        nodes.every_node_has_memory_beyond_its_heap,
        "is more than half",
        lambda s: s["cassandra-1"].update(mem_limit="1g"),
    ),
    (
        nodes.the_store_is_on_the_nodes_of_this_file,
        "store: cassandra-2 is missing",
        lambda s: s.update({"cassandra-two": s.pop("cassandra-2")}),
    ),
    (
        nodes.the_store_is_on_the_nodes_of_this_file,
        "store: cassandra-4 is left out",
        lambda s: s.update({"cassandra-4": s["cassandra-3"]}),
    ),
    (
        nodes.the_store_is_on_the_nodes_of_this_file,
        "store: 3 replicas do not fit 2 nodes",
        lambda s: s.pop("cassandra-3"),
    ),
    (
        nodes.the_store_is_on_the_nodes_of_this_file,
        "store: cassandra-1 is not in the datacenter",
        _set_for("cassandra-1", CASSANDRA_DC="east"),
    ),
    (
        nodes.services_that_open_the_store_wait_for_it,
        "store-init: does not wait for cassandra-3",
        lambda s: s["store-init"]["depends_on"].pop("cassandra-3"),
    ),
    (
        nodes.services_that_open_the_store_wait_for_it,
        "spark-worker: does not wait for store-init",
        lambda s: s["spark-worker"]["depends_on"].pop("store-init"),
    ),
    (
        nodes.services_that_open_the_store_wait_for_it,
        "airflow-dag-processor: does not wait for store-init",
        lambda s: s["airflow-init"]["depends_on"].pop("store-init"),
    ),
    (nodes.services_that_open_the_store_wait_for_it, "is created by []", lambda s: s.pop("store-init")),
    (
        nodes.services_that_open_the_store_get_its_secrets,
        "spark-worker: does not get",
        lambda s: s["spark-worker"].pop("env_file"),
    ),
]
