"""The files that services of a code host and cargo-deny read are valid, and speak of everything that is here."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
# What the runners of the workflow are, in the words of Node.js.
PLATFORM_OF = {
    "ubuntu-24.04": "linux-x64",
    "ubuntu-24.04-arm": "linux-arm64",
    "macos-15": "darwin-arm64",
    "macos-15-intel": "darwin-x64",
    "windows-2025": "win32-x64",
}


def run(*words):
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def updates(ecosystem):
    """The directories in which new versions are looked for."""
    entries = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    found = [it for it in entries if it["package-ecosystem"] == ecosystem]
    return {path for it in found for path in it.get("directories") or [it["directory"]]}


def directories_of(pattern):
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    places = {Path(name).parent for name in names if re.search(pattern, name)}
    return {"/" if place == Path() else f"/{place}" for place in places}


def test_the_workflow_and_the_updates_have_the_form_that_is_asked_for():
    for kind, file in [("github-workflows", "workflows/ci.yml"), ("dependabot", "dependabot.yml")]:
        run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", GITHUB / file)


def test_the_workflow_runs_what_every_machine_runs():
    jobs = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert "bash .ci/run" in commands
    toolchain = jobs["checks"]["container"].removeprefix("rust:").removesuffix("-bookworm")
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert toolchain == cargo["workspace"]["package"]["rust-version"]


def test_linux_programs_are_built_where_the_c_library_is_old_enough():
    jobs = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())["jobs"]
    rows = jobs["packages"]["strategy"]["matrix"]["include"]
    containers = [row.get("container") for row in rows if row["os"].startswith("ubuntu-")]
    # Debian 12: what the tests run on, and what the image of deploy/Dockerfile is made of.
    assert containers == [jobs["checks"]["container"]] * 2
    assert jobs["packages"]["container"] == "${{ matrix.container }}"
    assert "debian:bookworm-slim" in (ROOT / "deploy/Dockerfile").read_text()


def test_new_versions_are_looked_for_wherever_versions_are_pinned():
    assert updates("npm") == directories_of(r"package-lock\.json$")
    assert updates("pip") == directories_of(r"requirements[^/]*\.txt$")
    assert updates("cargo") == directories_of(r"Cargo\.lock$")
    assert updates("docker") == directories_of(r"Dockerfile$")


def test_lock_files_name_no_registry():
    locks = [name for name in run("git", "ls-files").splitlines() if name.endswith("package-lock.json")]
    assert len(locks) > 10, locks
    for lock in map(ROOT.joinpath, locks):
        assert '"resolved": "http' not in lock.read_text(), f"{lock} names the host that its packages came from"
        # npm writes it there again without this line.
        settings = (lock.parent / ".npmrc").read_text().splitlines()
        assert "omit-lockfile-registry-resolved=true" in settings, lock.parent


def test_every_platform_of_the_npm_packages_is_built():
    listed = re.search(r"PLATFORMS = \[(.*?)\]", (ROOT / "packages/build.mjs").read_text(), re.DOTALL)
    jobs = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())["jobs"]
    runners = [row["os"] for row in jobs["packages"]["strategy"]["matrix"]["include"]]
    assert set(re.findall(r"'([^']+)'", listed[1])) == {PLATFORM_OF[runner] for runner in runners}


def test_what_is_linked_has_a_license_and_a_source_that_are_allowed():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    metadata = run("cargo", "metadata", "--format-version=1", "--locked", "--all-features")
    packages = json.loads(metadata)["packages"]
    allowed, used = set(rules["licenses"]["allow"]), set()
    for package in packages:
        name = f"{package['name']} {package['version']}"
        assert is_allowed(package["license"] or "", allowed, used), f"{name}: {package['license']}"
        assert package["source"] is None or package["source"].startswith("registry+"), name
    assert allowed == used, f"nothing has these any more: {allowed - used}"


def is_allowed(expression, allowed, used):
    """Whether a license expression can be met. Notes in `used` which licenses are in it."""
    words = re.findall(r"[()]|[^\s()/]+(?: WITH [^\s()]+)?|/", expression)
    names = {"(": "(", ")": ")", "/": "or", "OR": "or", "AND": "and"}
    used |= set(words) & allowed
    return eval(" ".join(names.get(word, str(word in allowed)) for word in words) or "False")


def test_expressions_of_licenses_are_understood():
    allowed = {"MIT", "Apache-2.0 WITH LLVM-exception"}
    for expression, expected in [
        ("MIT", True),
        ("GPL-3.0", False),
        ("", False),
        ("MIT/Apache-2.0", True),
        ("Apache-2.0 / GPL-3.0", False),
        ("MIT AND GPL-3.0", False),
        ("(GPL-3.0 OR MIT) AND MIT", True),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", True),
        ("Apache-2.0", False),
    ]:
        assert is_allowed(expression, allowed, set()) is expected, expression
