"""The Helm chart: linted, rendered for the kinds of cluster in ci/, and checked against Kubernetes' own schemas.

Rendering needs helm, which is built here from its source once (`go install`, one pinned version) and kept in .tools.
The manifests in deploy/kubernetes are the chart's default rendering; a difference is a fault.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.check.outcome import ROOT, Failed, Skipped, need, note, run
from deploy.check.queries import RULES

CHART: Final = ROOT / "deploy" / "helm" / "codec-gateway"
PLAIN: Final = ROOT / "deploy" / "kubernetes" / "codec-gateway.yaml"
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.19.0"
KUBERNETES: Final = "1.34.0"
_OUR_OWN_KINDS: Final = {"ServiceMonitor", "PrometheusRule"}
"""Kinds that other software adds to a cluster; Kubernetes has no schema for them."""
_NAMESPACE_OF_THE_STORE: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "redis"}}}
_HEAD: Final = "# Made by: python -m deploy.check.chart. The chart's defaults, for clusters without Helm.\n"


def steps() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the steps of the chart, in order."""
    yield "helm", make_helm
    yield "chart: lint", lint
    yield "chart: render and validate", validate
    yield "chart: replicas that share a secret", check_sharing
    yield "chart: a store needs such a secret", refuse_a_store_alone
    yield "chart: rules and alerts", check_rules
    yield "chart: plain manifests", compare


def make_helm() -> str:
    """Build helm, unless it is already there."""
    folder = ROOT / ".tools" / "bin"
    if (folder / "helm").exists():
        return "kept from an earlier run"
    go = need("go", "golang")
    try:
        run([go, "install", HELM], seconds=3600, env={"GOBIN": str(folder), "GOFLAGS": "-p=2"})
    except Failed as failure:
        raise Skipped(f"helm can't be built here: {str(failure).splitlines()[-1]}") from None
    note("made", "helm", True)
    return HELM


def lint() -> str:
    """Run `helm lint --strict` for the defaults and every file of ci/."""
    helm = need("helm", "built by the step before")
    for values in _value_files():
        run([helm, "lint", "--strict", "--quiet", str(CHART), *values])
    return f"{len(_value_files())} sets of values"


def validate() -> str:
    """Check every rendering against the schemas of Kubernetes, with unknown fields refused."""
    check = need("kubernetes-validate", "deploy/check/requirements.txt")
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for values in _value_files():
            documents = [each for each in yaml.safe_load_all(render(values)) if each]
            known = [each for each in documents if each["kind"] not in _OUR_OWN_KINDS]
            path = Path(folder) / "rendered.yaml"
            path.write_text(yaml.safe_dump_all(known), encoding="utf-8")
            run([check, "--strict", "--quiet", f"--kubernetes-version={KUBERNETES}", str(path)])
            count += len(known)
    return f"{count} objects of {len(_value_files())} renderings"


def check_sharing() -> str:
    """Check that replicas with a secret use their pods' addresses, reach that port alone, and begin with pins."""
    documents = [each for each in yaml.safe_load_all(render([f"--values={CHART / 'ci' / 'sharing.yaml'}"])) if each]
    found = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents if "spec" in each}
    pod = found["Deployment", "codec-gateway"]["template"]["spec"]
    (gateway,) = pod["containers"]
    settings = {each["name"]: each for each in gateway["env"]}
    policy = found["NetworkPolicy", "codec-gateway"]
    peers = [{"podSelector": {"matchLabels": found["Deployment", "codec-gateway"]["selector"]["matchLabels"]}}]
    held = {
        "its address is the pod's": settings["CODEC_GATEWAY_REPLICAS__ADDRESS"]["valueFrom"]
        == {"fieldRef": {"fieldPath": "status.podIP"}},
        "the secret is a file": settings["CODEC_GATEWAY_REPLICAS__KEY_FILE"]["value"] == "/replicas/key"
        and settings["CODEC_GATEWAY_REPLICAS__PREVIOUS_KEY_FILE"]["value"] == "/replicas/previous"
        and {"name": "replicas", "mountPath": "/replicas", "readOnly": True} in gateway["volumeMounts"],
        "only gateways reach the port": [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "replicas"}]]
        == [{"ports": [{"port": "replicas"}], "from": peers}],
        "gateways may reach it": {"ports": [{"port": 8602}], "to": peers} in policy["egress"],
        "the store's address is a secret": settings["CODEC_GATEWAY_SHARED__URL"]["valueFrom"]
        == {"secretKeyRef": {"name": "codec-gateway-store", "key": "url"}},
        "its keys have their prefix": settings["CODEC_GATEWAY_SHARED__PREFIX"]["value"] == "{agents}:",
        "the store's authority is a file": {"name": "shared", "mountPath": "/shared", "readOnly": True}
        in gateway["volumeMounts"]
        and _volume(pod, "shared")["configMap"]
        == {"name": "store-authority", "items": [{"key": "ca.crt", "path": "ca.crt"}]},
        "gateways may reach the store, and it alone": [
            rule for rule in policy["egress"] if {"port": 6380} in rule["ports"]
        ]
        == [{"ports": [{"port": 6380}], "to": [_NAMESPACE_OF_THE_STORE]}],
        "pins are put before the start": [each["name"] for each in pod["initContainers"]] == ["pins"],
        "replicas are spread": [each["topologyKey"] for each in pod["topologySpreadConstraints"]]
        == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"],
    }
    if missing := [what for what, holds in held.items() if not holds]:
        raise Failed(f"in the rendering of ci/sharing.yaml these do not hold: {', '.join(missing)}")
    return f"{len(held)} things of ci/sharing.yaml"


def refuse_a_store_alone() -> str:
    """Check that the schema refuses a store without a secret that replicas share: nothing could be sealed."""
    try:
        render(["--set=shared.existingSecret=store"])
    except Failed as failure:
        if "existingSecret" in str(failure):
            return "shared.existingSecret without sharing.existingSecret is refused"
        raise
    raise Failed("shared.existingSecret without sharing.existingSecret is rendered")


def check_rules() -> str:
    """Check that the chart's PrometheusRule has the rules and alerts of deploy/prometheus, and that it is valid."""
    promtool = need("promtool", "prometheus")
    documents = yaml.safe_load_all(render(["--set=prometheusRule.enabled=true"]))
    (spec,) = [each["spec"] for each in documents if each and each["kind"] == "PrometheusRule"]
    files = [yaml.safe_load((RULES / name).read_text(encoding="utf-8")) for name in ("rules.yml", "alerts.yml")]
    if spec["groups"] != [group for file in files for group in file["groups"]]:
        raise Failed("the chart's PrometheusRule is not deploy/prometheus: copy its two files into the chart's files/")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yml"
        path.write_text(yaml.safe_dump(spec), encoding="utf-8")
        run([promtool, "check", "rules", str(path)])
    return f"{sum(len(group['rules']) for group in spec['groups'])} rules, those of deploy/prometheus"


def compare() -> str:
    """Check that the committed plain manifests are what the chart renders."""
    if PLAIN.read_text(encoding="utf-8") != plain():
        raise Failed(f"{PLAIN.relative_to(ROOT)} is not the chart's rendering: python -m deploy.check.chart")
    return str(PLAIN.relative_to(ROOT))


def plain() -> str:
    """Return the default rendering, without what only Helm runs."""
    parts = render([], "--skip-tests", "--no-hooks")
    return _HEAD + parts.replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")


def render(values: list[str], *flags: str) -> str:
    """Return the output of `helm template` for the chart."""
    helm = need("helm", "built by the step before")
    command = [helm, "template", "codec-gateway", str(CHART), "--namespace=codec", f"--kube-version={KUBERNETES}"]
    return run([*command, *values, *flags])


def _volume(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in pod["volumes"] if each["name"] == name)


def _value_files() -> list[list[str]]:
    return [[], *([f"--values={path}"] for path in sorted((CHART / "ci").glob("*.yaml")))]


if __name__ == "__main__":
    PLAIN.parent.mkdir(exist_ok=True)
    PLAIN.write_text(plain(), encoding="utf-8")
