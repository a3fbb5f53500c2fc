"""What the tests share: where the bridge and the corpora are, and a scripted Gemini."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Cargo's target directory; a relative one is taken from the project, as the xtask takes it.
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def pytest_addoption(parser):
    parser.addoption("--bridge", default=str(TARGET / "debug/adk-bridge"), help="path of adk-bridge")
    parser.addoption(
        "--corpus", default=str(TARGET / "conformance/google"), help="directory of the corpus of test_google.py"
    )


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def gemini(request):
    """The address of a scripted Gemini."""
    command = [request.config.getoption("--bridge"), "fake-gemini", "--pace=0ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            line = program.stdout.readline().strip()
            assert line.startswith("listening on "), f"the scripted Gemini did not say where it listens: {line!r}"
            yield line.removeprefix("listening on ").rstrip("/")
        finally:
            program.kill()
