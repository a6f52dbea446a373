"""The examples of docs/scale.md have the shape of what they are; `make replicas-check` starts balancers with theirs."""

import re

import yaml

from tests.replicas.stickiness import PAGE, examples

WRITTEN = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def test_ingress_sends_an_address_to_one_replica_and_lets_streams_be() -> None:
    (ingress,) = [each for each in WRITTEN if each["kind"] == "Ingress"]
    notes = {name.partition("/")[2]: text for name, text in ingress["metadata"]["annotations"].items()}

    assert ingress["apiVersion"] == "networking.k8s.io/v1"
    assert notes == {"upstream-hash-by": "$remote_addr", "proxy-buffering": "off", "proxy-read-timeout": "120"}
    assert all(isinstance(text, str) for text in notes.values())
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/", "Prefix")
    assert path["backend"]["service"]["port"] == {"name": "http"}


def test_route_ends_no_stream() -> None:
    (route,) = [each for each in WRITTEN if each["kind"] == "HTTPRoute"]

    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"]["parentRefs"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    assert [set(each) for each in rule["backendRefs"]] == [{"name", "port"}]


def test_page_shows_what_the_check_starts() -> None:
    shown = examples()

    assert "stick store-response res.hdr(mcp-session-id)" in shown["haproxy"]
    assert shown["nginx"].strip() == "hash $remote_addr consistent;"
