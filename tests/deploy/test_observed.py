"""Rules, alerts and dashboard speak of metrics that exist, and of each other truly."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check.queries import DASHBOARD, RULES, as_values, expressions
from gateway.observe.metrics import Metrics
from tests.cases import each_of

ROOT = Path(__file__).parents[2]
PANELS: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
SCRAPED = {"job", "instance"}
"""Labels that Prometheus puts to everything."""
NAME = re.compile(r"\b(?:codec_\w+|codec:[\w:]+|process_\w+)")


def rules(file: str, kind: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def grouped(expression: str) -> set[str]:
    """Labels by which an expression groups."""
    return {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}


RECORDED = {rule["record"]: grouped(rule["expr"]) for rule in rules("rules.yml", "record")}
ALERTS = rules("alerts.yml", "alert")


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Every name that the gateway's page of metrics can carry, and its labels."""
    metrics = Metrics()
    kinds = dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", metrics.render().decode()))
    labels = {each.name: set(each.labels) for each in metrics.described}
    for name in [name for name, kind in kinds.items() if kind == "histogram"]:
        labels |= {f"{name}_{part}": {*labels[name], "le"} for part in ("bucket", "count", "sum")}
    assert set(kinds) >= {each.name for each in metrics.described}
    return labels | {name: set() for name in set(kinds) - set(labels)} | {"up": set()}


@each_of(("who", "expression"), list(expressions()))
def test_expression_names_only_what_is_served_or_recorded(
    who: str, expression: str, served: dict[str, set[str]]
) -> None:
    assert set(NAME.findall(expression)) - set(served) - set(RECORDED) == set(), who


@each_of(("who", "expression"), list(expressions()))
def test_expression_chooses_and_groups_by_labels_that_its_metrics_have(
    who: str, expression: str, served: dict[str, set[str]]
) -> None:
    known = SCRAPED.union(*({**served, **RECORDED}[name] for name in NAME.findall(expression)))
    chosen = {label for part in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)(?:=|!)", part)}

    assert grouped(expression) | chosen <= known, who


def test_row_of_the_cache_shows_reuse_losses_by_reason_and_hidden_prefill() -> None:
    titles = [panel["title"] for panel in PANELS]
    first = titles.index("The engine's cache") + 1
    asked = [panel["targets"][0]["expr"] for panel in PANELS[first : first + 3]]

    assert [NAME.findall(expression) for expression in asked] == [
        ["codec:reused_ids:ratio_rate10m"],
        ["codec_prompt_ids_lost_total"],
        ["codec_prefilled_ids_total"],
    ]
    assert "by (reason)" in asked[1]
    assert PANELS[first + 1]["targets"][0]["legendFormat"] == "{{reason}}"


def test_what_is_recorded_is_used() -> None:
    used = {name for _, expression in expressions() for name in NAME.findall(expression)}

    assert set(RECORDED) - used == set()


@each_of("alert", ALERTS)
def test_alert_says_how_bad_it_is_and_has_a_paragraph(alert: dict[str, Any]) -> None:
    page, _, anchor = alert["annotations"]["runbook"].partition("#")

    assert alert["labels"]["severity"] in {"page", "ticket", "info"}
    assert alert["annotations"]["summary"]
    assert anchor == alert["alert"].lower()
    assert f"\n### {alert['alert']}\n" in (ROOT / page).read_text()


@each_of("alert", ALERTS)
def test_alert_is_held_by_a_unit_test(alert: dict[str, Any]) -> None:
    tested = yaml.safe_load((RULES / "rules_test.yml").read_text())["tests"]
    fires = {case["alertname"] for test in tested for case in test["alert_rule_test"] if case["exp_alerts"]}

    assert alert["alert"] in fires


def test_panels_have_places_of_their_own() -> None:
    places = [
        (p["gridPos"]["x"] + dx, p["gridPos"]["y"] + dy)
        for p in PANELS
        for dx in range(p["gridPos"]["w"])
        for dy in range(p["gridPos"]["h"])
    ]

    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_panels_ask_the_provisioned_source() -> None:
    source = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())

    assert {p["datasource"]["uid"] for p in PANELS if p["type"] != "row"} == {source["datasources"][0]["uid"]}


def test_first_row_answers_health_speed_and_saving() -> None:
    rows = [number for number, panel in enumerate(PANELS) if panel["type"] == "row"]
    first = {panel["title"]: {t["expr"] for t in panel["targets"]} for panel in PANELS[1 : rows[1]]}
    names = {name for expressions in first.values() for text in expressions for name in NAME.findall(text)}

    assert rows[0] == 0
    assert list(first)[:2] == ["Gateways", "Engine"]
    assert names >= {
        *("codec_leaf_bypasses_total", "codec_shim_tokenize_calls_total", "codec_spliced_ids_total"),
        *("codec_generation_reused_ids_total", "codec_generation_prompt_ids_total"),
        *("codec:tokenize_seconds_saved:rate5m", "codec:wire_bytes_saved:rate5m", "codec:first_id_seconds:p50_rate5m"),
        *("codec:tool_call_seconds:p95_rate5m", "codec:tool_calls:rate5m"),
    }


def test_every_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] != "row" and not panel["description"]] == []


def test_what_is_called_spared_says_that_it_is_an_estimate_or_a_least() -> None:
    spared = [panel["description"] for panel in PANELS if "spared" in panel["title"]]

    assert len(spared) == 2
    assert all("estimate" in words or "at least" in words for words in spared)


def test_groups_have_names_of_their_own_so_that_one_file_can_hold_all() -> None:
    groups = [yaml.safe_load((RULES / file).read_text())["groups"] for file in ("rules.yml", "alerts.yml")]
    names = [group["name"] for each in groups for group in each]

    assert len(names) == len(set(names))


def test_comparisons_are_asked_as_values() -> None:
    assert as_values("a > 1 and b == 0") == "a > bool 1 and b == bool 0"
    assert as_values('up{job="x"} == 0') == 'up{job="x"} == bool 0'
    assert as_values('rate(a{b=~"c|d"}[5m])') == 'rate(a{b=~"c|d"}[5m])'


def test_prometheus_reads_every_rule_file_and_asks_the_admin_port() -> None:
    config = yaml.safe_load((RULES / "prometheus.yml").read_text())

    assert sorted(config["rule_files"]) == ["alerts.yml", "rules.yml"]
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["gateway:8601"]}]
