"""The files of deploy/, judged by the linters and parsers of those who read them, and by the bridge itself."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import promql_parser
import pytest
import yaml

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BRIDGE = TARGET / "debug" / "adk-bridge"

# What a replica takes to stop besides server.drain: two seconds until balancers notice, five for the end.
NOTICED, GOING = 2, 5
DRAIN = 20
# Exposed to what an attacker inside could do, in systemd's own measure: below 2.0 is "OK".
EXPOSURE = 20
SECRET = "a-long-random-string-0123456789"


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, **more)
    return done.returncode, done.stdout + done.stderr


def documents(path):
    return [it for it in yaml.safe_load_all(path.read_text()) if it]


def manifests():
    return [it for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for it in documents(path)]


def of_kind(kind):
    (found,) = [it for it in manifests() if it["kind"] == kind]
    return found


def is_accepted(toml, directory, **environment):
    """The bridge itself refuses the placeholder, and takes the rest."""
    file = directory / "adk-bridge.toml"
    file.write_text(toml)
    inherited = {"PATH": os.environ["PATH"], **environment}
    check = [BRIDGE, "check-config", "--config", file]
    code, said = run(*check, env=inherited, cwd=directory)
    assert code == 1 and "auth.api_keys" in said, said
    assert said.count("problem") == 1, said
    file.write_text(toml.replace("CHANGE-ME", SECRET))
    code, said = run(*check, env=inherited, cwd=directory)
    assert code == 0, said


def test_the_image():
    hadolint = Path(sys.executable).parent / "hadolint"
    code, said = run(hadolint, "--failure-threshold", "style", DEPLOY / "Dockerfile")
    assert code == 0, said
    final = (DEPLOY / "Dockerfile").read_text().rsplit("\nFROM ", 1)[1]
    user = re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert user and "0" not in user.groups(), final
    assert re.search(r'^ENTRYPOINT \["', final, re.MULTILINE), "signals go to the bridge, not to a shell"


@pytest.mark.parametrize("manifest", manifests(), ids=lambda it: it["kind"])
def test_manifests_are_valid(manifest):
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_replicas_have_time_to_hand_over_and_little_to_attack():
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= sleep + NOTICED + DRAIN + GOING
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    # Every name that one manifest gives is the one that others look for.
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = of_kind(kind)["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        assert selector.get("matchLabels", selector).items() <= labels.items()
    secret = of_kind("Secret")
    for variable in container["env"]:
        if key := variable.get("valueFrom", {}).get("secretKeyRef"):
            assert key["name"] == secret["metadata"]["name"] and key["key"] in secret["stringData"]


def test_the_network_lets_monitoring_in_and_spans_out():
    policy = of_kind("NetworkPolicy")["spec"]
    monitoring = {"kubernetes.io/metadata.name": "monitoring"}

    def ports(rules, side):
        reached = [
            port["port"]
            for rule in rules
            for peer in rule[side]
            for port in rule["ports"]
            if peer.get("namespaceSelector", {}).get("matchLabels") == monitoring
        ]
        return reached

    assert ports(policy["ingress"], "from") == [8080]
    assert ports(policy["egress"], "to") == [4318]


def test_the_configuration_of_the_manifests(tmp_path):
    secret = of_kind("Secret")["stringData"]
    environment = {
        "ADK_BRIDGE__STORE__URL": secret["STORE_URL"],
        "ADK_BRIDGE__SERVER__ADVERTISE": "http://10.0.0.5:8080",
        "ADK_BRIDGE__CLUSTER__NAME": "adk-bridge-5d9c7b-x2x9q",
        "CLUSTER_KEY": SECRET,
        "GEMINI_API_KEY": SECRET,
    }
    is_accepted(secret["adk-bridge.toml"], tmp_path, **environment)


def compose():
    (found,) = documents(DEPLOY / "compose" / "compose.yaml")
    return found


def test_the_compose_file(tmp_path):
    schema = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    code, said = run(*schema, DEPLOY / "compose" / "compose.yaml")
    assert code == 0, said
    services = compose()["services"]
    volumes, networks = compose()["volumes"], compose()["networks"]
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            is_file = source.startswith("./") and (DEPLOY / "compose" / source).is_file()
            assert is_file or source in volumes, f"{name}: {source}"
        assert set(service.get("networks", [])) <= set(networks), name
        waits = service.get("depends_on", {})
        assert set(waits) <= set(services), name
        # Who uses a directory that another service prepares and leaves waits for that.
        mounted = {volume.split(":")[0] for volume in service.get("volumes", [])} & set(volumes)
        for other, prepared in services.items():
            shared = mounted & {volume.split(":")[0] for volume in prepared.get("volumes", [])}
            if shared and "command" in prepared and other != name:
                assert waits[other]["condition"] == "service_completed_successfully", name
        assert "build" in service or not service["image"].endswith(":latest"), name
    replicas = {name: it for name, it in services.items() if name.startswith("bridge-")}
    assert len(replicas) == 2
    for name, replica in replicas.items():
        assert replica["read_only"] and replica["cap_drop"] == ["ALL"]
        assert int(replica["stop_grace_period"].removesuffix("s")) >= NOTICED + DRAIN + GOING
        assert replica["environment"]["ADK_BRIDGE__SERVER__ADVERTISE"] == f"http://{name}:8080"
    environment = dict(replicas["bridge-1"]["environment"])
    for name, value in environment.items():
        environment[name] = re.sub(r"\$\{\w+:\?[^}]*\}", SECRET, value)
    toml = (DEPLOY / "compose" / "adk-bridge.toml").read_text()
    is_accepted(toml, tmp_path, **environment)


def test_the_proxy_has_no_stickiness_and_is_what_nginx_takes(tmp_path):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert nginx, "install nginx"
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    assert not re.search(r"^\s*(ip_hash|hash|sticky)\b", text, re.MULTILINE)
    assert re.search(r"proxy_buffering\s+off;", text)
    # Their names are known inside of the network only.
    local = re.sub(r"bridge-(\d):8080", r"127.0.0.\1:8080", text)
    whole = f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{local}\n}}\n"
    (tmp_path / "nginx.conf").write_text(whole)
    code, said = run(nginx, "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", "stderr")
    assert code == 0, said


def test_the_unit_is_valid_and_hardened(tmp_path):
    assert shutil.which("systemd-analyze"), "install systemd"
    unit = (DEPLOY / "adk-bridge.service").read_text()
    # The configuration holds keys: it is readable by the group of the unit, which has to be there before.
    (group,) = re.findall(r"^Group=(\S+)$", unit, re.MULTILINE)
    assert f"--user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin {group}\n" in unit
    assert f"--group={group} --mode=0640" in unit and "DynamicUser=" not in unit
    limit = int(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[1])
    assert limit >= NOTICED + DRAIN + GOING
    # The program is elsewhere here, and the documents are not installed.
    here = tmp_path / "adk-bridge.service"
    here.write_text(unit.replace("/usr/local/bin/adk-bridge", str(BRIDGE.resolve())))
    code, said = run("systemd-analyze", "verify", "--man=no", here)
    ours = [line for line in said.splitlines() if "adk-bridge" in line]
    assert not ours, said
    code, said = run("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", here)
    assert code == 0, said[-400:]


def test_the_arguments_of_the_unit_are_those_of_the_program(tmp_path):
    unit = (DEPLOY / "adk-bridge.service").read_text()
    commands = re.findall(r"^Exec(?:Start|Reload)=/usr/local/bin/adk-bridge (.*)$", unit, re.MULTILINE)
    assert [it.split()[0] for it in commands] == ["serve", "check-config"]
    for command in commands:
        code, said = run(BRIDGE, *command.split(), "--help")
        assert code == 0 and "--data-dir" in said, said
    image = (DEPLOY / "Dockerfile").read_text()
    assert '"serve", "--config"' in image


def rules():
    (found,) = documents(DEPLOY / "alerts.yaml")
    return [rule for group in found["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda it: it["alert"])
def test_alerts_are_rules_of_prometheus(rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    promql_parser.parse(rule["expr"])
    if "for" in rule:
        promql_parser.parse_duration(rule["for"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert [it["alert"] for it in rules()].count(rule["alert"]) == 1
