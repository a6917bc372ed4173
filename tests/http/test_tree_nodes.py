"""Walking the tree from node to node."""

from __future__ import annotations

from typing import Any

from tests.support.client import Client, code

ROUTE = "/admin/v1/tree/nodes"


def _step(client: Client, namespace: str = "ns", **more: Any) -> dict[str, Any]:
    answer = client.get(ROUTE, params={"namespace": namespace, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_tree_is_walked_from_the_root_down(client: Client) -> None:
    stem = [70_001, 70_002, 70_003]
    short = client.record_full("ns", stem[:2], b"a")
    long = client.record_full("ns", [*stem, 70_004], b"bcd")
    client.record_full("ns", [*stem, 70_005], b"e")
    root = _step(client)
    assert (root["node"]["depth"], root["node"]["parent_id"], root["node"]["children"]) == (
        0,
        None,
        1,
    )
    (stem_node,) = root["children"]
    assert (stem_node["depth"], stem_node["edge_tokens"], stem_node["children"]) == (2, 2, 1)
    assert [held["state_id"] for held in stem_node["states"]] == [short]
    parting = _step(client, node_id=stem_node["node_id"])
    assert parting["node"] == stem_node
    (fork,) = parting["children"]
    assert (fork["states"], fork["state_count"], fork["children"]) == ([], 0, 2)
    leaves = _step(client, node_id=fork["node_id"])["children"]
    assert [(leaf["depth"], leaf["edge_tokens"], leaf["children"]) for leaf in leaves] == [
        (4, 1, 0)
    ] * 2
    assert leaves[0]["states"] == [
        {"state_id": long, "kind": "full_state", "status": "live", "logical_bytes": 3}
    ]


def test_children_come_in_pages_and_none_is_skipped_or_shown_twice(client: Client) -> None:
    for token in range(7):
        client.record_full("ns", [token], b"x")
    seen: list[int] = []
    more: dict[str, Any] = {}
    while True:
        page = _step(client, limit=3, **more)
        assert len(page["children"]) <= 3
        seen += [child["node_id"] for child in page["children"]]
        if not page["more"]:
            break
        more = {"after": seen[-1]}
    assert len(seen) == len(set(seen)) == 7 == page["node"]["children"]


def test_token_ids_are_not_shown(client: Client) -> None:
    client.record_full("ns", [70_001, 70_002], b"a")
    assert "7000" not in client.get(ROUTE, params={"namespace": "ns"}).text


def test_a_quarantined_state_is_seen_beside_its_newer_recording(client: Client) -> None:
    old = client.record_full("ns", [1], b"a")
    client.post(f"/admin/v1/states/{old}/quarantine", json={"reason": "r"})
    new = client.record_full("ns", [1], b"b")
    (node,) = _step(client)["children"]
    assert [(held["state_id"], held["status"]) for held in node["states"]] == [
        (new, "live"),
        (old, "quarantined"),
    ]


def test_states_of_a_node_are_shown_up_to_a_bound_and_counted(client: Client) -> None:
    for _ in range(18):
        state_id = client.record_full("ns", [1], b"a")
        client.post(f"/admin/v1/states/{state_id}/quarantine", json={"reason": "r"})
    (node,) = _step(client)["children"]
    assert (len(node["states"]), node["state_count"]) == (16, 18)


def test_a_namespace_without_recordings_has_no_root(client: Client) -> None:
    identity = {"model_id": "m", "weights_digest": "sha256:00"}
    client.post("/v1/namespaces", json={"namespace": "empty", "identity": identity})
    assert _step(client, "empty") == {"node": None, "children": [], "more": False}


def test_only_nodes_of_the_namespace_are_shown(client: Client) -> None:
    client.record_full("ns", [1], b"a")
    client.record_full("other", [1], b"a")
    theirs = _step(client, "other")["children"][0]["node_id"]
    for node in (theirs, 10**15):
        answer = client.get(ROUTE, params={"namespace": "ns", "node_id": node})
        assert code(answer) == (404, "node_not_found")
    assert code(client.get(ROUTE, params={"namespace": "?"})) == (404, "namespace_not_found")
    for wrong in ({"limit": 0}, {"limit": 201}, {"node_id": 0}, {"node_id": 2**63}, {"after": "x"}):
        answer = client.get(ROUTE, params={"namespace": "ns", **wrong})
        assert code(answer) == (422, "invalid_request")
