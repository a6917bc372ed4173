"""What an answer leads to: OpenAPI links from what is given back to the calls that take it.

One table, so that tools (and people reading the document) can walk from an admission to its upload and
commit, or from a lookup to its lease. A value that an answer does not have, as the lease of a lookup
that acquired nothing, leads nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_Call = tuple[str, str]

_RECORD: Final = "/v1/records/{state_id}"
_STATE: Final = "/v1/states/{state_id}"
_SEEN: Final = "/admin/v1/states/{state_id}"
_LEASE: Final = "/v1/leases/{lease_id}"

_RECORDING: Final[tuple[_Call, ...]] = (
    ("PUT", f"{_RECORD}/components/{{name}}"),
    ("POST", f"{_RECORD}/components/{{name}}/need"),
    ("PUT", f"{_RECORD}/components/{{name}}/blocks"),
    ("POST", f"{_RECORD}/commit"),
    ("GET", _RECORD),
    ("DELETE", _RECORD),
)
_HELD: Final[tuple[_Call, ...]] = (
    ("GET", _STATE),
    ("GET", f"{_STATE}/components/{{name}}"),
    ("HEAD", f"{_STATE}/components/{{name}}"),
    ("POST", f"{_STATE}/blocks"),
)
_DESK: Final[tuple[_Call, ...]] = (
    ("GET", _SEEN),
    ("POST", f"{_SEEN}/quarantine"),
    ("POST", f"{_SEEN}/verify"),
    ("POST", f"{_SEEN}/release"),
    ("GET", f"{_SEEN}/components/{{name}}/raw"),
    ("DELETE", _SEEN),
)
_LEASED: Final[tuple[_Call, ...]] = (
    ("POST", f"{_LEASE}/heartbeat"),
    ("POST", f"{_LEASE}/release"),
)
_JOB: Final[tuple[_Call, ...]] = (
    ("GET", "/admin/v1/jobs/{job_id}"),
    ("POST", "/admin/v1/jobs/{job_id}/cancel"),
)
_NAMESPACE: Final[tuple[_Call, ...]] = (
    ("GET", "/v1/namespaces"),
    ("GET", "/admin/v1/states"),
    ("GET", "/admin/v1/tree"),
    ("GET", "/admin/v1/tree/nodes"),
)

_Lead = tuple[Mapping[str, str], tuple[_Call, ...]]

# (method, path, status) -> parameters and where their values stand, and the calls that take them.
LINKS: Final[Mapping[tuple[str, str, int], tuple[_Lead, ...]]] = {
    ("POST", "/v1/records", 201): (({"state_id": "$response.body#/state_id"}, _RECORDING),),
    ("POST", "/v1/records", 200): (({"state_id": "$response.body#/state_id"}, _HELD),),
    ("PUT", f"{_RECORD}/components/{{name}}", 200): (
        ({"state_id": "$request.path.state_id"}, _RECORDING[3:]),
    ),
    ("PUT", f"{_RECORD}/components/{{name}}/blocks", 200): (
        ({"state_id": "$request.path.state_id"}, _RECORDING[3:]),
    ),
    ("POST", f"{_RECORD}/components/{{name}}/need", 200): (
        ({"state_id": "$request.path.state_id"}, _RECORDING[2:4]),
    ),
    ("POST", f"{_RECORD}/commit", 200): (
        ({"state_id": "$response.body#/state_id"}, _HELD + _DESK),
    ),
    ("POST", f"{_RECORD}/commit", 202): (
        ({"state_id": "$response.body#/state_id"}, _RECORDING[3:]),
    ),
    ("POST", "/v1/states", 201): (({"state_id": "$response.body#/state_id"}, _HELD + _DESK),),
    ("POST", "/v1/states", 200): (({"state_id": "$response.body#/state_id"}, _HELD),),
    ("POST", "/v1/lookup", 200): (
        ({"state_id": "$response.body#/state/state_id"}, _HELD),
        ({"lease_id": "$response.body#/lease/lease_id"}, _LEASED),
    ),
    ("GET", _STATE, 200): (({"state_id": "$response.body#/state_id"}, _HELD[1:]),),
    ("POST", f"{_LEASE}/heartbeat", 200): (({"lease_id": "$response.body#/lease_id"}, _LEASED),),
    ("POST", f"{_LEASE}/release", 200): (
        ({"state_id": "$response.body#/state_id"}, (_HELD[0], _DESK[0])),
    ),
    ("POST", "/v1/namespaces", 200): (({"namespace": "$response.body#/namespace"}, _NAMESPACE),),
    ("GET", "/admin/v1/states", 200): (({"state_id": "$response.body#/states/0/state_id"}, _DESK),),
    ("GET", "/admin/v1/quarantine", 200): (
        ({"state_id": "$response.body#/states/0/state_id"}, _DESK[:1] + _DESK[2:]),
    ),
    ("POST", f"{_SEEN}/quarantine", 200): (
        ({"state_id": "$request.path.state_id"}, _DESK[:1] + _DESK[2:]),
    ),
    ("GET", "/admin/v1/tree/nodes", 200): (
        (
            {
                "namespace": "$request.query.namespace",
                "node_id": "$response.body#/children/0/node_id",
            },
            (("GET", "/admin/v1/tree/nodes"),),
        ),
    ),
    ("POST", "/admin/v1/tokens", 201): (
        ({"token_id": "$response.body#/token_id"}, (("DELETE", "/admin/v1/tokens/{token_id}"),)),
    ),
    ("PUT", "/admin/v1/tenants/{name}", 200): (
        ({"name": "$response.body#/tenant"}, (("PUT", "/admin/v1/tenants/{name}"),)),
    ),
    ("POST", "/admin/v1/jobs", 202): (({"job_id": "$response.body#/job_id"}, _JOB),),
    ("GET", "/admin/v1/jobs", 200): (({"job_id": "$response.body#/jobs/0/job_id"}, _JOB),),
}


def link(document: dict[str, Any]) -> None:
    """Write the links into an OpenAPI document.

    Raises:
        KeyError: the table names a call or an answer that the document does not have.
    """
    paths = document["paths"]
    for (method, path, status), leads in LINKS.items():
        answer = paths[path][method.lower()]["responses"][str(status)]
        links = answer.setdefault("links", {})
        for parameters, calls in leads:
            for called, to in calls:
                operation = paths[to][called.lower()]
                if not parameters.keys() <= {known["name"] for known in operation["parameters"]}:
                    raise KeyError(f"{called} {to} does not take {', '.join(parameters)}")
                links[operation["operationId"]] = {
                    "operationId": operation["operationId"],
                    "parameters": dict(parameters),
                    "description": operation["summary"],
                }
