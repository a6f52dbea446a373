"""The files of deploy/ checked against their schemas and by linters, without starting anything.

Compose file, Dockerfiles, Prometheus' files with their unit tests, and systemd's units. The chart has a module of its
own (`chart.py`).
"""

import tempfile
from pathlib import Path
from typing import Final

from deploy.check.outcome import ROOT, need, run

_COMPOSE: Final = ("docker-compose.yml", "examples/compose/compose.override.yml")
_RULES: Final = ROOT / "deploy" / "prometheus"
_UNITS: Final = ROOT / "deploy" / "systemd"


def check_compose() -> str:
    """Check the compose file and the overlay of the examples against the compose specification's schema."""
    run([need("check-jsonschema", "deploy/check/requirements.txt"), "--builtin-schema=vendor.compose-spec", *_COMPOSE])
    return "valid by the compose specification"


def check_dockerfiles() -> str:
    """Lint both Dockerfiles."""
    files = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
    run([need("hadolint", "deploy/check/requirements.txt"), *map(str, files)])
    return f"{len(files)} without a complaint"


def check_rules() -> str:
    """Check rules, alerts and configuration with promtool, and run the unit tests of the rules."""
    promtool = need("promtool", "prometheus")
    run([promtool, "check", "rules", "rules.yml", "alerts.yml"], where=_RULES)
    run([promtool, "check", "config", "prometheus.yml"], where=_RULES)
    run([promtool, "test", "rules", "rules_test.yml"], where=_RULES)
    return "rules, configuration and unit tests pass"


def check_units() -> str:
    """Check the systemd units, with the command at the path that they name."""
    analyze = need("systemd-analyze", "systemd")
    with tempfile.TemporaryDirectory() as folder:
        for unit in sorted(_UNITS.glob("codec-gateway.*")):
            text = unit.read_text(encoding="utf-8").replace("/opt/codec-gateway/bin/codec-gateway", "/bin/true")
            (Path(folder) / unit.name).write_text(text, encoding="utf-8")
        run([analyze, "verify", "--man=no", f"{folder}/codec-gateway.service", f"{folder}/codec-gateway.socket"])
        exposure = run(
            [analyze, "security", "--offline=true", "--threshold=20", "--no-pager", f"{folder}/codec-gateway.service"]
        )
    return exposure.strip().splitlines()[-1].replace("→ Overall exposure level for ", "").strip()
