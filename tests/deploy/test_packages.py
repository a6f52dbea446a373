"""Images, chart and units: what they must say, without building any."""

import hashlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.check import outcome
from deploy.check.compose import read_compose
from deploy.check.outcome import PACKAGES, Failed

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "codec-gateway"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
PUT_MODEL = ROOT / "deploy" / "compose" / "put_model.py"
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """As Helm lays values over the defaults."""
    both = {key: merged(base[key], value) for key, value in more.items() if isinstance(base.get(key), dict)}
    return {**base, **more, **both}


@every_dockerfile
def test_image_needs_no_shell_and_no_root(path: Path) -> None:
    lines = path.read_text().replace("\\\n", " ").splitlines()
    said = {line.split()[0]: line.partition(" ")[2].strip() for line in lines if line and line[0].isupper()}

    assert re.fullmatch(r"[1-9]\d+:\d+", said["USER"])
    assert said["STOPSIGNAL"] == "SIGTERM"
    for instruction in ("RUN", "ENTRYPOINT", "CMD"):
        shell = [line for line in lines if re.match(rf"\s*{instruction} (?!--)", line) and "[" not in line.split()[1]]
        assert shell == []


@every_dockerfile
def test_health_check_calls_a_module_of_ours(path: Path) -> None:
    found = re.search(r'CMD \["python", "-m", "([\w.]+)"', path.read_text())

    assert found is not None
    assert find_spec(found[1]) is not None


@every_dockerfile
def test_base_is_an_argument_and_pinned(path: Path) -> None:
    text = path.read_text()

    assert re.findall(r"(?m)^FROM (\S+)", text) == ["${BASE}", "${BASE}"]
    assert re.search(r"(?m)^ARG BASE=\S+:\d[\w.-]+$", text)


@every_dockerfile
def test_compiled_modules_are_good_whatever_times_a_layer_gives_their_sources(path: Path) -> None:
    assert "UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH" in path.read_text()


def test_builder_gets_no_environment_and_no_history() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]

    assert rules[0] == "*"
    assert not [rule for rule in rules if rule.startswith("!.")]
    assert "**/.env" in rules


@pytest.mark.parametrize("name", ["", *sorted(path.name for path in (CHART / "ci").glob("*.yaml"))])
def test_values_of_the_chart_fit_their_schema(name: str) -> None:
    more = yaml.safe_load((CHART / "ci" / name).read_text()) if name else {}

    jsonschema.validate(merged(VALUES, more), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": {"mode": "somewhere"}},
        {"engine": {"mode": "external"}},
        {"token": {"existingSecret": ""}},
        {"token": {"value": "secret"}},
        {"replica": 2},
        {"model": {"sha256": "abc"}},
        {"service": {"port": 0}},
    ],
    ids=json.dumps,
)
def test_values_that_can_not_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, wrong), SCHEMA)


def test_chart_and_compose_name_the_same_engine_and_model() -> None:
    engine = read_compose(ROOT / "docker-compose.yml", {})["services"]["engine"]["image"]
    text = (ROOT / "docker-compose.yml").read_text()

    assert VALUES["engine"]["gpuImage"] == engine
    for key in ("file", "sha256", "mapHash"):
        assert VALUES["model"][key] in text


def test_chart_carries_the_script_of_compose() -> None:
    assert (CHART / "files" / "put_model.py").read_text() == PUT_MODEL.read_text()


@pytest.mark.parametrize("name", ["rules.yml", "alerts.yml"])
def test_chart_carries_the_rules_and_alerts_of_compose(name: str) -> None:
    assert (CHART / "files" / name).read_text() == (ROOT / "deploy" / "prometheus" / name).read_text()


def test_plain_manifests_are_confined_and_name_no_secret() -> None:
    documents = [
        each for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/codec-gateway.yaml").read_text()) if each
    ]
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    containers = [c for pod in pods for c in [*pod["containers"], *pod.get("initContainers", [])]]

    assert [each for each in documents if each["kind"] == "Secret"] == []
    assert pods
    assert all(pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"] for pod in pods)
    for container in containers:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_every_pod_has_rules_for_what_it_may_reach() -> None:
    text = (ROOT / "deploy/kubernetes/codec-gateway.yaml").read_text()
    documents = [each for each in yaml.safe_load_all(text) if each]
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in documents if each["kind"] == "Deployment"]
    policies = [each["spec"] for each in documents if each["kind"] == "NetworkPolicy"]
    gateway = next(each for each in policies if "gateway" in each["podSelector"]["matchLabels"].values())

    for labels in pods:
        (policy,) = [each for each in policies if each["podSelector"]["matchLabels"].items() <= labels.items()]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
    # Nothing inside the cluster but what it names: addresses of private networks are left out.
    assert all("to" in rule or {port["port"] for port in rule["ports"]} == {53} for rule in gateway["egress"])
    blocks = [to["ipBlock"] for rule in gateway["egress"] for to in rule.get("to", ()) if "ipBlock" in to]
    assert all("10.0.0.0/8" in block["except"] for block in blocks)
    template = (CHART / "templates/networkpolicy.yaml").read_text()
    assert template.count("kind: NetworkPolicy") == template.count("policyTypes: [Ingress, Egress]")


def test_nginx_keeps_its_connections_and_clients_their_gateway() -> None:
    lines = {line.strip() for line in (ROOT / "deploy/nginx/codec-gateway.conf").read_text().splitlines()}

    assert {"keepalive 64;", "hash $remote_addr;"} <= lines
    # Without these two nothing is kept.
    assert {"proxy_http_version 1.1;", 'proxy_set_header Connection "";'} <= lines


def test_slots_are_named_only_where_one_gateway_has_the_engine() -> None:
    services = read_compose(ROOT / "docker-compose.yml", {})["services"]
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    manifests = (ROOT / "deploy/kubernetes/codec-gateway.yaml").read_text()

    assert services["gateway"]["environment"]["CODEC_GATEWAY_ENGINE__EXCLUSIVE"] == "true"
    assert services["engine"]["networks"].keys() == services["engine-cpu"]["networks"].keys() == {"engine"}
    assert [name for name, each in services.items() if "engine" in each.get("networks", ())] == [
        *("engine", "engine-cpu", "gateway"),
    ]
    # A pod of its own is reached by all replicas.
    assert 'ENGINE__EXCLUSIVE, value: {{ eq .Values.engine.mode "sidecar" | quote }}' in helpers
    assert manifests.count("CODEC_GATEWAY_ENGINE__EXCLUSIVE") == 2


def test_engines_keep_what_their_slots_held() -> None:
    services = read_compose(ROOT / "docker-compose.yml", {})["services"]
    command = services["engine"]["command"]

    assert int(command[command.index("--cache-ram") + 1]) > 0
    assert VALUES["engine"]["cacheMib"] > 0


def put_model(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PUT_MODEL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_model_that_is_there_is_only_checked(tmp_path: Path) -> None:
    model = tmp_path / "own.gguf"
    model.write_bytes(b"a model")
    digest = hashlib.sha256(b"a model").hexdigest()

    assert put_model(str(model), f"sha256:{digest.upper()}").returncode == 0
    assert model.read_bytes() == b"a model"


def test_model_that_is_another_stops_the_stack(tmp_path: Path) -> None:
    model = tmp_path / "own.gguf"
    model.write_bytes(b"another")
    done = put_model(str(model), "0" * 64)

    assert done.returncode == 1
    assert "has the sha256" in done.stderr
    assert model.read_bytes() == b"another"


def test_model_that_nobody_carries_is_asked_for(tmp_path: Path) -> None:
    done = put_model(str(tmp_path / "own.gguf"), "0" * 64)

    assert done.returncode == 1
    assert "put the model's GGUF file there" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_packaged_model_is_put_whole_and_readable(tmp_path: Path) -> None:
    wanted = VALUES["model"]["sha256"]
    target = tmp_path / "model.gguf"

    assert put_model(str(target), wanted).returncode == 0
    assert hashlib.sha256(target.read_bytes()).hexdigest() == wanted
    assert target.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_unit_confines_the_gateway_and_its_socket_has_the_name_that_is_asked_for() -> None:
    service = (ROOT / "deploy" / "systemd" / "codec-gateway.service").read_text().splitlines()
    socket = (ROOT / "deploy" / "systemd" / "codec-gateway.socket").read_text().splitlines()

    assert "FileDescriptorName=faces" in socket
    assert "RestartPreventExitStatus=3" in service
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet="):
        assert line in service


def test_every_program_that_steps_use_is_brought_by_deploy_install() -> None:
    makefile = (ROOT / "Makefile").read_text()
    line = re.search(r"(?m)^deploy-install:.*\n(.*apt-get install --yes.*)$", makefile)

    assert line is not None
    assert set(line[1].partition("--no-install-recommends ")[2].split()) == set(PACKAGES.values())


def test_missing_programs_are_named_and_what_needs_them_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("podman", "runc", "netavark", "aardvark-dns"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setattr(outcome, "_SYSTEM", ())
    monkeypatch.setenv("PATH", str(tmp_path))

    assert outcome.missing() == [program for program in PACKAGES if not (tmp_path / program).exists()]
    with pytest.raises(outcome.Skipped, match="iptables is not installed here"):
        outcome.need("podman", "podman")


def test_command_that_does_not_end_is_ended_with_the_programs_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ends = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(Failed, match="did not end within 1 s"):
        outcome.run(["sh", "-c", f"sleep 600 > {pipe} & wait"], seconds=1)

    os.set_blocking(ends, True)
    # It returns once nobody is left who could write.
    assert os.read(ends, 1) == b""
    os.close(ends)
