"""Checks of the Cassandra nodes, and of the services that open the store on them."""

from __future__ import annotations

import zipfile
from functools import cache
from itertools import combinations
from pathlib import Path

from sweep_tasks.config import load_settings
from sweep_tasks.local.jars import ARTIFACT, VERSION, cassandra_jars
from sweep_tasks.store import StoreLocation
from sweep_tasks.store.cassandra.address import CassandraAddress
from tests.deployment.addresses import listening
from tests.deployment.checks import Problems, deployment_settings, programs_of_ours
from tests.deployment.compose import Deployment, Service
from tests.deployment.image import version_of
from tests.deployment.javap import fields_of

DATA = "/var/lib/cassandra"
_PUT_INTO_CASSANDRA_YAML = {
    f"CASSANDRA_{key.upper()}": key
    for key in (
        "broadcast_address",
        "broadcast_rpc_address",
        "cluster_name",
        "endpoint_snitch",
        "listen_address",
        "num_tokens",
        "rpc_address",
        "start_rpc",
    )
} | {"CASSANDRA_SEEDS": "seed_provider"}
"""How the image's entry point uses variables with these names."""
_ONLY_FOR_A_SNITCH_WITH_A_FILE = {"CASSANDRA_DC", "CASSANDRA_RACK"}
_OF_THE_START_SCRIPT = {"MAX_HEAP_SIZE", "HEAP_NEWSIZE", "JVM_EXTRA_OPTS"}
_SNITCH_WITH_A_FILE = "GossipingPropertyFileSnitch"
_UNITS = {"m": 1, "g": 1024}


def every_node_is_of_the_version_that_tests_run(deployment: Deployment) -> Problems:
    tags = {node.name: version_of(node.definition["image"]) for node in nodes(deployment)}
    return [f"{name}: {tag} is not the tested {VERSION}" for name, tag in tags.items() if tag != VERSION]


def every_setting_of_a_node_is_known(deployment: Deployment) -> Problems:
    """Check settings against the image, and against the class into which Cassandra reads its configuration."""
    found = []
    for node in nodes(deployment):
        for name, value in node.environment.items():
            problem = _problem_of(name, value, node.environment.get("CASSANDRA_ENDPOINT_SNITCH"))
            found += [f"{node.name}: {name} {problem}"] if problem else []
    return found


def _problem_of(name: str, value: str, snitch: str | None) -> str | None:
    if name in _OF_THE_START_SCRIPT:
        return None
    if name in _ONLY_FOR_A_SNITCH_WITH_A_FILE:
        return None if snitch == _SNITCH_WITH_A_FILE else f"needs the snitch {_SNITCH_WITH_A_FILE}"
    if name not in _PUT_INTO_CASSANDRA_YAML:
        return "is ignored by the image"
    if _PUT_INTO_CASSANDRA_YAML[name] not in known_settings():
        return f"is no setting of Cassandra {VERSION}"
    if name == "CASSANDRA_ENDPOINT_SNITCH" and f"org/apache/cassandra/locator/{value}.class" not in _files():
        return f"names {value}, which is no snitch"
    return None


def nodes_make_one_cluster(deployment: Deployment) -> Problems:
    """Check seeds: nodes find each other through a seed; two clusters would each hold half of the data."""
    there = nodes(deployment)
    found = []
    for setting in ("CASSANDRA_CLUSTER_NAME", "CASSANDRA_SEEDS", "CASSANDRA_DC"):
        given = {node.environment.get(setting) for node in there}
        found += [f"{setting} differs: {given}"] if len(given) > 1 else []
    seeds = {name for node in there for name in node.environment.get("CASSANDRA_SEEDS", "").split(",")}
    return found + [f"seed {seed} is no node" for seed in seeds - {node.name for node in there}]


def nodes_join_one_after_the_other(deployment: Deployment) -> Problems:
    """Check the start order, seed first: two nodes that join concurrently may get the same token range."""
    there = {node.name for node in nodes(deployment)}
    seeds = {node.environment.get("CASSANDRA_SEEDS", "") for node in nodes(deployment)}
    found = [f"seed {name} waits for nodes" for name in seeds & there if waited_for(deployment, name) & there]
    return found + [
        f"{one} and {other} join at the same time"
        for one, other in combinations(sorted(there), 2)
        if other not in waited_for(deployment, one) and one not in waited_for(deployment, other)
    ]


def every_node_keeps_its_data_to_itself(deployment: Deployment) -> Problems:
    """Check that each node has its own persistent volume."""
    kept: dict[str, list[str]] = {}
    found = []
    for node in nodes(deployment):
        volumes = [mount.source for mount in node.mounts if mount.target == DATA and mount.is_volume]
        for volume in volumes:
            kept.setdefault(volume, []).append(node.name)
        found += [] if volumes else [f"{node.name}: its data is on no volume"]
    return found + [f"{volume}: is shared by {names}" for volume, names in kept.items() if len(names) > 1]


def every_node_has_memory_beyond_its_heap(deployment: Deployment) -> Problems:
    """Check the memory limit: off-heap buffers and the page cache need about as much as the heap, and the kernel kills
    a process that exceeds the limit."""
    found = []
    for node in nodes(deployment):
        heap, limit = node.environment.get("MAX_HEAP_SIZE"), node.definition.get("mem_limit")
        if not heap or not limit:
            found.append(f"{node.name}: its memory has no limit")
        elif 2 * _megabytes(heap) > _megabytes(str(limit)):
            found.append(f"{node.name}: a heap of {heap} is more than half of {limit}")
    return found


def the_store_is_on_the_nodes_of_this_file(deployment: Deployment) -> Problems:
    store = store_address()
    there = {node.name: node for node in nodes(deployment)}
    found = [f"store: {host} is missing" for host in store.hosts if host not in there]
    found += [f"store: {name} is left out" for name in there if name not in store.hosts]
    for host in set(store.hosts) & set(there):
        if store.port not in listening(there[host], deployment):
            found.append(f"store: nothing listens at {host}:{store.port}")
        if store.datacenter not in (None, there[host].environment.get("CASSANDRA_DC")):
            found.append(f"store: {host} is not in the datacenter {store.datacenter}")
    if (store.replication or 0) > len(there):
        found.append(f"store: {store.replication} replicas do not fit {len(there)} nodes")
    return found


def services_that_open_the_store_wait_for_it(deployment: Deployment) -> Problems:
    """Check dependencies: the service that creates the store waits for every node, because all must know a table."""
    makers = [service.name for service in deployment.services.values() if service.command[:2] == ["sweepflow", "init"]]
    if len(makers) != 1:
        return [f"the store is created by {makers}"]
    names = {node.name for node in nodes(deployment)}
    found = [f"{makers[0]}: does not wait for {name}" for name in sorted(names - waited_for(deployment, makers[0]))]
    return found + [
        f"{service.name}: does not wait for {makers[0]}"
        for service in openers(deployment)
        if service.name != makers[0] and makers[0] not in waited_for(deployment, service.name)
    ]


def services_that_open_the_store_get_its_secrets(deployment: Deployment) -> Problems:
    return [
        f"{service.name}: does not get .env.store"
        for service in openers(deployment)
        if ".env.store" not in {file["path"] for file in service.definition.get("env_file", [])}
    ]


def nodes(deployment: Deployment) -> list[Service]:
    return [each for each in deployment.services.values() if each.definition["image"].split(":")[0] == "cassandra"]


def openers(deployment: Deployment) -> list[Service]:
    """Return all services with our code but the API server, which only displays."""
    return [service for service in programs_of_ours(deployment) if "api-server" not in " ".join(service.command)]


def waited_for(deployment: Deployment, name: str) -> set[str]:
    """Return the services that are healthy or completed before this service starts."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for other in deployment.services[ahead.pop()].definition.get("depends_on", {}):
            if other not in found and other in deployment.services:
                found.add(other)
                ahead.append(other)
    return found


def store_address() -> CassandraAddress:
    address = StoreLocation.parse(deployment_settings().store).cassandra
    assert address is not None, "the store of the compose file is not Cassandra"
    return address


@cache
def cassandra_jar() -> Path:
    return cassandra_jars(load_settings().cache_folder, print) / f"{ARTIFACT}-{VERSION}.jar"


@cache
def known_settings() -> set[str]:
    return fields_of(cassandra_jar(), "org.apache.cassandra.config.Config")


@cache
def _files() -> frozenset[str]:
    with zipfile.ZipFile(cassandra_jar()) as jar:
        return frozenset(jar.namelist())


def _megabytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1].lower()]
