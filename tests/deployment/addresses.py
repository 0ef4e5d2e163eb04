"""Check that a service listens at every address that another one uses."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.deployment.compose import Deployment, Service
from tests.deployment.image import scripts
from tests.deployment.programs import commands_of

_ADDRESS = re.compile(r"(?:://|@)(?:[^/@\s]*@)?(?P<host>[a-z0-9.-]+):(?P<port>\d+)")
_OF_OTHER_IMAGES = {"postgres": {5432}, "cassandra": {7000, 9042}}


def every_address_is_listened_at(deployment: Deployment) -> list[str]:
    """Check addresses: a name is a service, 127.0.0.1 the container itself, localhost the host's published ports."""
    outside = {int(port.split(":")[-2]) for service in deployment.services.values() for port in _published(service)}
    found = []
    for service in deployment.services.values():
        for host, port in addresses(service):
            if host == "localhost":
                open_there = outside
            else:
                name = service.name if host == "127.0.0.1" else host
                called = deployment.services.get(name)
                open_there = listening(called, deployment) if called else set()
            if port not in open_there:
                found.append(f"{service.name}: nothing listens at {host}:{port}")
    return found


def every_published_port_is_listened_at(deployment: Deployment) -> list[str]:
    return [
        f"{service.name}: publishes {port}, where it does not listen"
        for service in deployment.services.values()
        for port in _published(service)
        if int(port.split(":")[-1]) not in listening(service, deployment)
    ]


def no_two_services_publish_the_same_port(deployment: Deployment) -> list[str]:
    ports = [port.split(":")[-2] for service in deployment.services.values() for port in _published(service)]
    return [f"port {port} is published twice" for port in {port for port in ports if ports.count(port) > 1}]


def only_this_machine_sees_the_ports(deployment: Deployment) -> list[str]:
    return [
        f"{service.name}: publishes {port} to all machines"
        for service in deployment.services.values()
        for port in _published(service)
        if not port.startswith("127.0.0.1:")
    ]


def addresses(service: Service) -> list[tuple[str, int]]:
    return [(match["host"], int(match["port"])) for text in service.texts for match in _ADDRESS.finditer(text)]


def listening(service: Service, deployment: Deployment) -> set[int]:
    """Return the ports that a service opens, from its command, its settings or their defaults."""
    if service.definition["image"] != deployment.image:
        return _OF_OTHER_IMAGES.get(service.definition["image"].split(":")[0], set())
    words = service.command
    if words[:1] == ["sh"] and words[1] in scripts(deployment.dockerfile):
        words = commands_of(words[1], deployment)[-1]
    given = {int(port) for option, port in pairwise(words) if option in ("--port", "--webui-port")}
    if words[:2] == ["airflow", "api-server"]:
        return given or {_airflow_port("api.port", deployment)}
    if words[:2] == ["airflow", "scheduler"] and service.environment.get("AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"):
        return {_airflow_port("scheduler.scheduler_health_check_server_port", deployment)}
    return given if words[:1] == ["spark-class"] else set()


def _airflow_port(setting: str, deployment: Deployment) -> int:
    return int(deployment.airflow.settings[setting] or 0)


def _published(service: Service) -> list[str]:
    return [str(port) for port in service.definition.get("ports", [])]
