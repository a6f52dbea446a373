"""docker-compose.yml keeps its own rules: what is open, what is pinned, what is written where."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check.compose import networks_of, read_compose, started_by
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.vocab import map_digest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE = read_compose(FILE, {})
VARIABLES = dict(re.findall(r"\$\{([A-Z_0-9]+):-([^}]*)\}", FILE.read_text()))
every_service = pytest.mark.parametrize("name", COMPOSE["services"])


def service(name: str) -> dict[str, Any]:
    return COMPOSE["services"][name]


@every_service
def test_service_is_confined_and_bounded(name: str) -> None:
    settings = service(name)

    assert settings["read_only"] is True
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert settings["deploy"]["resources"]["limits"]["memory"]
    assert set(settings["logging"]["options"]) == {"max-size", "max-file"}
    assert settings["restart"] == ("no" if name == "model" else "unless-stopped")


@every_service
def test_service_says_how_it_is_or_that_it_ends(name: str) -> None:
    check = service(name)["healthcheck"]

    assert check == {"disable": True} if name == "model" else check["test"][0] == "CMD"


@every_service
def test_ports_are_published_on_loopback_unless_told_otherwise(name: str) -> None:
    assert [port for port in service(name).get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize(("variable", "moves"), [("BIND", {"gateway"}), ("MONITORING_BIND", {"prometheus", "grafana"})])
def test_what_asks_for_no_token_is_opened_by_a_variable_of_its_own(variable: str, moves: set[str]) -> None:
    services = read_compose(FILE, {variable: "10.0.0.1"})["services"]
    moved = {name for name, each in services.items() for port in each.get("ports", []) if port.startswith("10.0.0.1:")}

    assert moved == moves


@every_service
def test_only_the_service_that_puts_the_model_may_write_it(name: str) -> None:
    volumes = [volume for volume in service(name).get("volumes", []) if volume.startswith("models:")]

    assert volumes == [] or all(volume.endswith(":ro") == (name != "model") for volume in volumes)


@every_service
def test_foreign_images_are_pinned_to_a_version(name: str) -> None:
    image = service(name)["image"]

    assert "build" in service(name) or re.search(r":[\w.-]*\d+[\w.-]*$", image), image


def test_profiles_differ_in_the_engine_alone() -> None:
    shared = {"model", "time-leaf", "gateway", "prometheus", "grafana"}

    assert set(started_by(COMPOSE, "gpu")) == shared | {"engine"}
    assert set(started_by(COMPOSE, "cpu")) == shared | {"engine-cpu"}
    reserved = [name for name in COMPOSE["services"] if "reservations" in service(name)["deploy"]["resources"]]
    assert reserved == ["engine"]


def test_services_start_after_what_they_need() -> None:
    order = list(started_by(COMPOSE, "cpu"))

    for name in order:
        needed = [other for other in service(name).get("depends_on", {}) if other in order]
        assert all(order.index(other) < order.index(name) for other in needed)


def test_engines_answer_to_the_name_that_the_gateway_calls() -> None:
    assert service("gateway")["environment"]["CODEC_GATEWAY_ENGINE__URL"] == "http://llama:8080"
    for name in ("engine", "engine-cpu"):
        assert list(networks_of(service(name))) == [("engine", ["llama"])]


def test_engine_and_tools_reach_nobody() -> None:
    assert [name for name, network in COMPOSE["networks"].items() if not network.get("internal")] == ["front"]
    front = [n for n in COMPOSE["services"] if "front" in dict(networks_of(service(n)))]
    assert front == ["gateway", "prometheus", "grafana"]


def test_every_variable_is_in_the_example_with_the_same_default() -> None:
    example = dict(re.findall(r"(?m)^#? ?([A-Z_0-9]+)=(.*)$", (ROOT / ".env.example").read_text()))

    assert example.pop("COMPOSE_PROFILES") == "gpu"
    assert example | {"MODELS": "models"} == VARIABLES


def test_no_secret_has_a_value() -> None:
    assert VARIABLES["CODEC_GATEWAY_TOKEN"] == ""
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_default_model_is_the_packaged_one(model_map_bytes: bytes) -> None:
    model = packaged_model()

    assert VARIABLES["MODEL_FILE"] == model.name
    with model.open("rb") as file:
        assert VARIABLES["MODEL_SHA256"] == hashlib.file_digest(file, "sha256").hexdigest()
    assert VARIABLES["MODEL_MAP_HASH"] == map_digest(model_map_bytes)


def test_files_that_are_mounted_are_there() -> None:
    for name in COMPOSE["services"]:
        for volume in service(name).get("volumes", []):
            if volume.startswith("./"):
                assert (ROOT / volume.partition(":")[0]).exists(), volume


def test_variables_are_filled_in_and_empty_ones_have_their_default(tmp_path: Path) -> None:
    path = tmp_path / "compose.yml"
    path.write_text(yaml.safe_dump({"a": ["${X:-one}/${Y:-}", {"b": "${Z}"}], "n": 3}))

    assert read_compose(path, {"X": "", "Z": "z"}) == {"a": ["one/", {"b": "z"}], "n": 3}
    with pytest.raises(KeyError, match="Z"):
        read_compose(path, {})
