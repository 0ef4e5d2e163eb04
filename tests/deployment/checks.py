"""Checks of the compose file. Each returns a list of problems, one sentence each; [] if there are none."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import version
from importlib.resources import files

import jsonschema
from pydantic import ValidationError

from sweep_tasks.config import FILE_VARIABLE, Settings
from sweep_tasks.orchestration.names import AIRFLOW_CONNECTION, SPARK_CONNECTION
from tests.deployment.compose import IMAGE, ROOT, Deployment, Service, references, texts
from tests.deployment.image import bases_of, folders_created, is_pinned, scripts

Problems = list[str]
SECRET_NAME = re.compile(r"PASSWORD$|SECRET|TOKEN$|_KEY$")
CREDENTIALS = re.compile(r"""://[^/@\s]*:(?P<in_address>[^/@\s]+)@|"password":"(?P<in_connection>[^"]+)""")


def the_schema_is_kept(deployment: Deployment) -> Problems:
    text = files("check_jsonschema.builtin_schemas.vendor").joinpath("compose-spec.json").read_text()
    validator = jsonschema.Draft202012Validator(json.loads(text))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(deployment.document)]


def every_variable_is_generated_and_used(deployment: Deployment) -> Problems:
    used, generated = {name for name, _ in references(deployment.document)}, set(deployment.variables)
    return [f"{name} is used but not generated" for name in used - generated - set(fetched_images(deployment))] + [
        f"{name} is generated but not used" for name in generated - used
    ]


def a_missing_variable_stops_the_start(deployment: Deployment) -> Problems:
    stopping = [
        (name, operator == ":?" or name in fetched_images(deployment))
        for name, operator in references(deployment.document)
    ]
    careless = [name for name, stops in stopping if not stops]
    return [f"{name} may be missing unnoticed" for name in careless]


def no_secret_is_written_down(deployment: Deployment) -> Problems:
    found = []
    for name, definition in deployment.document["services"].items():
        for variable, value in definition.get("environment", {}).items():
            password = CREDENTIALS.search(str(value))
            secrets = list(filter(None, password.groups())) if password else []
            if SECRET_NAME.search(variable):
                secrets.append(str(value))
            if not all(secret.startswith("${") for secret in secrets):
                found.append(f"{name}: {variable} holds a secret")
    return found


def every_file_exists(deployment: Deployment) -> Problems:
    named = []
    for service in deployment.services.values():
        build = service.definition.get("build")
        if build:
            named += [build["context"], f"{build['context']}/{build['dockerfile']}"]
        named += [mount.source for mount in service.mounts if not mount.is_volume]
        named += [file["path"] for file in service.definition.get("env_file", []) if file.get("required", True)]
    return [f"{name} does not exist" for name in named if not (ROOT / name).exists()]


def every_volume_and_network_is_declared_and_used(deployment: Deployment) -> Problems:
    found = []
    for kind in ("volumes", "networks"):
        declared = set(deployment.document.get(kind) or {})
        used = {
            name
            for service in deployment.services.values()
            for name in (
                [mount.source for mount in service.mounts if mount.is_volume]
                if kind == "volumes"
                else service.definition.get("networks", [])
            )
        }
        found += [f"{kind}: {name} is not declared" for name in used - declared]
        found += [f"{kind}: {name} is not used" for name in declared - used]
    return found


def every_image_has_an_exact_version(deployment: Deployment) -> Problems:
    images = {service.definition["image"] for service in deployment.services.values()}
    found = [f"image {image} is not pinned" for image in images if not is_pinned(image)]
    ours = f"sweepflow:{version('sweepflow')}"
    return found + ([] if deployment.image == ours else [f"image {deployment.image} should be {ours}"])


def every_pulled_image_may_be_named_by_its_digest(deployment: Deployment) -> Problems:
    """Check that a variable can replace each image; Compose also passes it to the build of our own image."""
    fetched = [
        str(definition["image"])
        for definition in deployment.document["services"].values()
        if definition["image"] != deployment.image
    ]
    found = [f"{image} has no variable" for image in fetched if not IMAGE.fullmatch(image)]
    bases = set(bases_of(deployment.dockerfile).items())
    passed_on = {
        (name, match["image"])
        for service in deployment.document["services"].values()
        for name, value in service.get("build", {}).get("args", {}).items()
        if (match := IMAGE.fullmatch(value)) and match["variable"] == name
    }
    return found + [f"the base {base} is not what Compose passes on" for _, base in bases ^ passed_on]


def fetched_images(deployment: Deployment) -> dict[str, str]:
    """Return for each variable that names an image its default version."""
    found = [IMAGE.fullmatch(text) for text in texts(deployment.document["services"])]
    return {match["variable"]: match["image"] for match in found if match}


def our_image_is_built_once_and_never_pulled(deployment: Deployment) -> Problems:
    builders = [service.name for service in deployment.ours() if "build" in service.definition]
    found = [] if len(builders) == 1 else [f"image {deployment.image} is built by {builders}"]
    return found + [
        f"{service.name}: would fetch {deployment.image}"
        for service in deployment.ours()
        if "build" not in service.definition and service.definition.get("pull_policy") != "never"
    ]


def services_have_health_checks_and_restart(deployment: Deployment) -> Problems:
    found = []
    for service in deployment.services.values():
        if service.runs_once:
            continue
        if not service.health_check:
            found.append(f"{service.name}: no health check")
        if service.definition.get("restart") != "unless-stopped":
            found.append(f"{service.name}: is not started again")
    return found


def dependencies_of_services_can_be_met(deployment: Deployment) -> Problems:
    found = []
    for service in deployment.services.values():
        for name, wait in service.definition.get("depends_on", {}).items():
            other = deployment.services.get(name)
            if other is None:
                found.append(f"{service.name}: waits for {name}, which does not exist")
            elif wait["condition"] == "service_healthy" and not other.health_check:
                found.append(f"{service.name}: waits for {name} to be healthy, which has no health check")
            elif (wait["condition"] == "service_completed_successfully") != other.runs_once:
                found.append(f"{service.name}: {wait['condition']} does not fit {name}")
    return found


def every_airflow_setting_is_known(deployment: Deployment) -> Problems:
    found = []
    for service in deployment.services.values():
        for name in service.environment:
            if name.startswith("AIRFLOW__"):
                _, section, key = name.split("__")
                if f"{section}.{key}".lower() not in deployment.airflow.settings:
                    found.append(f"{service.name}: {name} is no setting of Airflow")
    return found


def every_setting_of_ours_is_known(deployment: Deployment) -> Problems:
    known = {f"SWEEPFLOW_{name.upper()}" for name in Settings.model_fields} | {FILE_VARIABLE}
    return [
        f"{service.name}: {name} is no setting"
        for service in deployment.services.values()
        for name in service.environment
        if name.startswith("SWEEPFLOW_") and name not in known
    ]


def every_program_of_ours_has_the_same_settings(deployment: Deployment) -> Problems:
    """Check that the file named by the variable is mounted there and contains valid settings."""
    found = []
    for service in programs_of_ours(deployment):
        file = _on_this_side(service, service.environment.get(FILE_VARIABLE, ""))
        if file is None or not (ROOT / file).is_file():
            found.append(f"{service.name}: {FILE_VARIABLE} names no file that is mounted")
            continue
        try:
            Settings(**tomllib.loads((ROOT / file).read_text()))
        except ValidationError as error:
            found.append(f"{service.name}: {file}: {error}")
    return found


def folders_of_volumes_are_ours_in_the_image(deployment: Deployment) -> Problems:
    """Check owners: a volume takes the owner of the folder it hides; a missing folder would belong to root."""
    created = folders_created(deployment.dockerfile)
    return [
        f"{service.name}: {mount.target} is not created in the image"
        for service in deployment.ours()
        for mount in service.mounts
        if mount.is_volume and mount.target not in created
    ]


def dags_are_mounted_where_airflow_reads_them(deployment: Deployment) -> Problems:
    """Check the folder of DAGs. The page needs none: the package in the image registers it."""
    return [
        f"{service.name}: ./dags is not mounted at DAGS_FOLDER"
        for service in deployment.services.values()
        if service.command[:1] == ["airflow"]
        and ("./dags", service.environment.get("AIRFLOW__CORE__DAGS_FOLDER")) not in service.mounts
    ]


def the_connections_of_the_dag_are_given(deployment: Deployment) -> Problems:
    """Check connections: tasks need them, and without a Spark connection Airflow would use YARN."""
    found = []
    for name, kind in ((SPARK_CONNECTION, "spark"), (AIRFLOW_CONNECTION, "http")):
        for service in deployment.services.values():
            if service.command[:1] == ["airflow"]:
                given = json.loads(service.environment.get(f"AIRFLOW_CONN_{name.upper()}", "{}"))
                if given.get("conn_type") != kind:
                    found.append(f"{service.name}: connection {name} is not of type {kind}")
    return found


def every_user_has_a_password(deployment: Deployment) -> Problems:
    """Check passwords: for a user without one in its file, Airflow generates a password and prints it."""
    (server,) = [each for each in deployment.services.values() if "api-server" in " ".join(each.command)]
    users = server.environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")
    script = (ROOT / scripts(deployment.dockerfile)[server.command[1]]).read_text()
    return [
        f"user {name} has no password" for name in (user.split(":")[0] for user in users) if f'"{name}"' not in script
    ]


def workers_can_call_the_driver_back(deployment: Deployment) -> Problems:
    scheduler = next(each for each in deployment.services.values() if each.command == ["airflow", "scheduler"])
    names = {scheduler.definition.get("hostname"), scheduler.environment.get("SPARK_LOCAL_HOSTNAME")}
    return [] if names == {scheduler.name} else [f"{scheduler.name}: the Spark driver is announced as {names}"]


def concurrent_sweeps_fit_into_the_cluster(deployment: Deployment) -> Problems:
    """Check that concurrent sweeps get cores; otherwise drivers wait, and Airflow shows them as running."""
    at_once = deployment_settings().sweep_tasks_at_once.total
    options = deployment.services["spark-master"].environment["SPARK_MASTER_OPTS"]
    needed = at_once * int(options.removeprefix("-Dspark.deploy.defaultCores="))
    there = int(deployment.variables["SPARK_WORKERS"]) * int(deployment.variables["SPARK_WORKER_CORES"])
    return [] if needed <= there else [f"sweeps at once need {needed} cores, the workers have {there}"]


def deployment_settings() -> Settings:
    return Settings(**tomllib.loads((ROOT / "deploy" / "config" / "sweepflow.toml").read_text()))


def programs_of_ours(deployment: Deployment) -> list[Service]:
    """Return the services that run code of this project; the Spark master does not."""
    return [service for service in deployment.ours() if not any(".master." in word for word in service.command)]


def _on_this_side(service: Service, path: str) -> str | None:
    """Return the project path of a path in the container."""
    for mount in service.mounts:
        if not mount.is_volume and path.startswith(mount.target + "/"):
            return mount.source + path.removeprefix(mount.target)
    return None
