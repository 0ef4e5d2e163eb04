"""A client for the parts of Airflow's REST API that a sweep needs.

A task has no access to Airflow's database, and the interface of a task has no pools. So it logs in to the API as a user
with read permissions only.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from sweep_tasks import retries
from sweep_tasks.errors import AirflowHasNone, AirflowNotReady, AirflowUnreachable
from sweep_tasks.orchestration.pools import PREFIXES
from sweep_tasks.texts import printable, without_secrets

if TYPE_CHECKING:
    import httpx
    from airflow.sdk import Connection

_PAGE = 50
_LONGEST_DETAIL = 500


class AirflowApi:
    def __init__(self, address: str, user: str, password: str, timeout_s: float = 60) -> None:
        import httpx

        self._user, self._password = user, password
        self._shown = without_secrets(address)
        self._client = httpx.Client(base_url=address.rstrip("/"), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    @classmethod
    def of(cls, connection: Connection, timeout_s: float = 60) -> AirflowApi:
        """Create a client from a connection of type http, with the whole address as host, or its parts."""
        host = connection.host or ""
        address = host if "://" in host else f"{connection.schema or 'http'}://{host}"
        port = f":{connection.port}" if connection.port else ""
        return cls(address.rstrip("/") + port, connection.login or "", connection.password or "", timeout_s)

    def call(self, method: str, path: str, json: Any = None, **query: Any) -> Any:
        """Send a request and return the answer as JSON; `path` follows `/api/v2`. Log in first if needed."""
        for attempt in range(retries.AIRFLOW_LOGIN.attempts):
            answer = self._send(method, f"/api/v2{path}", json, query)
            if answer.status_code != HTTPStatus.UNAUTHORIZED or attempt + 1 == retries.AIRFLOW_LOGIN.attempts:
                break
            self._log_in()
        if answer.is_error:
            raise problem_of(answer, method, path)
        return answer.json() if answer.content else None

    def pool_slots(self) -> dict[str, int]:
        """Return the slots of each of our pools."""
        return {name: pool["slots"] for prefix in PREFIXES for name, pool in self._pools(prefix).items()}

    def busy_pools(self, prefix: str) -> set[str]:
        """Return the pools in which a task runs or is queued."""
        pools = self._pools(prefix)
        return {name for name, pool in pools.items() if pool["occupied_slots"] or pool["scheduled_slots"]}

    def _pools(self, prefix: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        while True:
            page = self.call("GET", "/pools", limit=_PAGE, offset=len(found), order_by="id", pool_name_pattern=prefix)
            found |= {pool["name"]: pool for pool in page["pools"]}
            if not page["pools"] or len(found) >= page["total_entries"]:
                return {name: pool for name, pool in found.items() if name.startswith(prefix)}

    def _send(self, method: str, path: str, json: Any, query: dict[str, Any] | None = None) -> httpx.Response:
        import httpx

        try:
            return self._client.request(method, path, json=json, params=query)
        except httpx.HTTPError as error:
            raise AirflowUnreachable(
                f"airflow: {self._shown} does not answer ({type(error).__name__}); "
                "correct the address, or start the API server"
            ) from error

    def _log_in(self) -> None:
        answer = self._send("POST", "/auth/token", {"username": self._user, "password": self._password})
        if answer.is_error:
            raise AirflowNotReady(
                f"airflow: {self._shown} refuses the login of user {self._user!r} ({answer.status_code}); "
                "correct the user or the password"
            )
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


def problem_of(answer: httpx.Response, method: str, path: str) -> AirflowNotReady:
    output = f"airflow: {method} {path} was answered with {answer.status_code}: {_detail(answer)}"
    if answer.status_code == HTTPStatus.NOT_FOUND:
        problem: AirflowNotReady = AirflowHasNone(output)
    elif answer.is_server_error:
        problem = AirflowUnreachable(output)
    else:
        problem = AirflowNotReady(output, code="exists" if answer.status_code == HTTPStatus.CONFLICT else None)
    problem.status = answer.status_code
    return problem


def _detail(answer: httpx.Response) -> str:
    try:
        return printable(str(answer.json()["detail"]), _LONGEST_DETAIL)
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase
