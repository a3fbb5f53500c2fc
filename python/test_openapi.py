"""The description of the API: that it is valid, and that a real bridge is as it says, whatever schemathesis sends."""

import contextlib
import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from checks import true
from openapi_streams import check_stream, validator

HERE = Path(__file__).parent
KEY = "a-key-of-alice-0123456789"
KEYS = f'[[auth.api_keys]]\nkey = "{KEY}"\nuser = "alice"\n'
# Keys of users with a role, and the operations that answer some of them otherwise than others.
ROLES = ["approver", "auditor", "admin"]
ROLE_KEYS = "".join(
    f'[[auth.api_keys]]\nkey = "a-key-of-an-{role}-0123456789"\nuser = "the-{role}"\nroles = ["{role}"]\n'
    for role in ROLES
)
OF_ROLES = ["--include-operation-id-regex", "^(eraseUser|endLogins|getAudit|exportAudit|exportUser|getSession)$"]
OF_LOGINS = ["--include-operation-id-regex", "^(logIn|completeLogin|logOut|getSession)$"]
COMPAT = '[server]\ncompat = ["adk-stream-protocol"]\n'
# The same requests every time, whose failures come again.
SEED = 40
# For each operation, in each phase; more of them find nothing new for minutes.
EXAMPLES = 10
# Ten times what the longest run takes: one that hangs says so, instead of holding up everything behind it.
SECONDS = 1800
# Other addresses of the same handlers, which are looked at once.
ALIASES = ["--exclude-operation-id-regex", "(OfAgent|WithSlash|[0-9])$"]
# What is not an error of the server is judged by what the description says. It says nothing of what JSON Schema cannot express,
# such as which ids there are, so a request that fits is not always taken; and unknown fields are ignored, so one that does not
# fit is not always refused.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "streams_are_of_chunks",
]


@contextlib.contextmanager
def bridge(request, directory, toml):
    """A bridge with the demo's agent; its log is shown if something fails."""
    config, log = directory / "bridge.toml", directory / "log"
    config.write_text(toml)
    command = [request.config.getoption("--bridge"), "serve", "--listen", "127.0.0.1:0", "--config", str(config)]
    command += ["--data-dir", str(directory / "data")]
    environment = {**os.environ, "ADK_BRIDGE__DEMO__PACE": "0ms"}
    with (
        log.open("w") as written,
        subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=written, text=True
        ) as program,
    ):
        try:
            line = program.stdout.readline().strip()
            true(line.startswith("listening on "), log.read_text())
            yield line.removeprefix("listening on ").rstrip("/")
            true(program.poll() is None, log.read_text())
            true("panicked" not in log.read_text(), log.read_text())
        finally:
            program.kill()


def read(url):
    with urllib.request.urlopen(f"{url}/api/openapi.json") as answer:
        return json.load(answer)


@pytest.mark.parametrize("toml", ["", KEYS, KEYS + COMPAT], ids=["open", "keys", "compat"])
def test_the_document_is_valid(request, tmp_path, toml):
    with bridge(request, tmp_path, toml) as url:
        document = read(url)
    OpenAPIV31SpecValidator(document).validate()


def test_every_example_fits_its_schema(request, tmp_path):
    with bridge(request, tmp_path, KEYS + COMPAT) as url:
        document = read(url)
    seen = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            bodies = list(operation["responses"].values())
            bodies += [operation["requestBody"]] if "requestBody" in operation else []
            medias = [media for body in bodies for media in body.get("content", {}).values()]
            for media in medias:
                if "x-itemSchema" in media:
                    data = media["x-itemSchema"]["properties"]["data"]["contentSchema"]
                    for example in media["examples"].values():
                        seen += 1
                        check_stream(validator(document, data), example["value"])
                    continue
                judge = validator(document, media["schema"])
                examples = [example["value"] for example in media.get("examples", {}).values()]
                for example in examples + ([media["example"]] if "example" in media else []):
                    seen += 1
                    problems = [problem.message for problem in judge.iter_errors(example)]
                    true(not problems, f"{method} {path}: {problems} in {example}")
            for parameter in operation.get("parameters", []):
                if "example" in parameter:
                    seen += 1
                    judge = validator(document, parameter["schema"])
                    problems = [problem.message for problem in judge.iter_errors(parameter["example"])]
                    true(not problems, f"{method} {path}: {problems} in {parameter}")
    true(seen > 200, f"{seen} examples")


@pytest.mark.parametrize(
    "toml, headers, more, checks",
    [
        (COMPAT, [], ALIASES, []),
        (KEYS, ["--header", f"Authorization: Bearer {KEY}"], [], ["ignored_auth"]),
        (KEYS, [], ALIASES, []),
    ],
    ids=["open", "with-a-key", "without-its-key"],
)
def test_the_bridge_is_as_described(request, tmp_path, toml, headers, more, checks):
    judge(request, tmp_path, toml, [*headers, *more], checks)


@pytest.mark.parametrize("role", ROLES)
def test_the_bridge_is_as_described_to_each_role(request, tmp_path, role):
    header = ["--header", f"Authorization: Bearer a-key-of-an-{role}-0123456789"]
    log = judge(request, tmp_path, KEYS + ROLE_KEYS, [*header, *OF_ROLES], [])
    # What only an administrator may do is done by this one, and by nobody else.
    true((" has erased " in log) == (role == "admin"), log[-3000:])


class Provider(http.server.BaseHTTPRequestHandler):
    """An identity provider as far as it says where it is; it accepts nobody."""

    def do_GET(self):
        own = f"http://{self.headers['host']}"
        described = {
            "issuer": own,
            "jwks_uri": f"{own}/jwks",
            "authorization_endpoint": f"{own}/auth",
            "token_endpoint": f"{own}/token",
            "end_session_endpoint": f"{own}/end",
        }
        point = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
        key = {"kty": "OKP", "crv": "Ed25519", "kid": "1", "alg": "EdDSA", "use": "sig", "x": point}
        self.answer(200, {"keys": [key]} if self.path == "/jwks" else described)

    def do_POST(self):
        self.answer(400, {"error": "invalid_grant"})

    def answer(self, status, said):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def providers():
    """Two of them, as the configuration names them."""
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [
        f'[[auth.oidc]]\nname = "p{n}"\nissuer = "http://127.0.0.1:{it.server_port}"\nclient_id = "bridge"\n'
        for n, it in enumerate(servers)
    ]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("count, began", [(1, 303), (2, 200)], ids=["one-provider", "two-providers"])
def test_logins_are_as_described(request, tmp_path, providers, count, began):
    toml = KEYS + "".join(providers[:count])
    log = judge(request, tmp_path, toml, OF_LOGINS, [])
    # Each of them is there: the bridge has asked its provider, or the user which one.
    true("a user cannot log in" not in log, log[-3000:])
    with bridge(request, tmp_path, toml) as url:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
        connection.request("GET", "/login")
        answer = connection.getresponse()
        true(answer.status == began, f"{answer.status}: {answer.read()[:300]}")


def judge(request, tmp_path, toml, more, checks):
    """Has schemathesis try everything that the description names, and returns the bridge's log."""
    # Limits of users are other tests' matter; here they would hide what is behind them.
    limits = "[limits]\nwrong_keys_per_minute = 1000000\n"
    with bridge(request, tmp_path, toml + limits) as url:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/openapi.json", "--url", url]
        command += [f"--checks={','.join(CHECKS + checks)}", "--phases=examples,coverage,fuzzing", *more]
        command += [f"--seed={SEED}", f"--max-examples={EXAMPLES}", "--generation-deterministic"]
        command += ["--no-color", "--continue-on-failure", "--no-shrink", "--request-timeout=30", "--warnings=off"]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_streams", "PYTHONPATH": str(HERE)}
        said = tmp_path / "said"
        with said.open("w") as written:
            try:
                done = subprocess.run(
                    command, cwd=tmp_path, env=environment, stdout=written, stderr=written, timeout=SECONDS
                )
            finally:
                print(said.read_text()[-30000:])
        true(done.returncode == 0, "schemathesis found what the description does not say")
        return (tmp_path / "log").read_text()
