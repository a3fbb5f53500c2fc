"""Checks that Google's own types accept what the bridge writes, and read it as it was meant.

The corpus has one case per line. Contents are validated as the body of ADK's /run_sse, events as ADK's Event. Both are written out again by Google's
types and must come back unchanged: a field that was ignored, renamed or read as something else shows up as a
difference. Left out of the comparison are only the alphabet of base64, the order of long-running ids, and defaults
that Google adds.
"""

import base64
import binascii
import json
from pathlib import Path

import pytest
from google.adk.cli.api_server import RunAgentRequest
from google.adk.events.event import Event

# Long values hide the difference that they are printed for.
SHOWN_CHARACTERS = 300

# Event fields that Google fills in when they are absent.
FILLED_IN = ("actions", "author", "id", "invocationId", "nodeInfo", "timestamp")


def pytest_generate_tests(metafunc):
    """One test for each line of the corpus."""
    corpus = Path(metafunc.config.getoption("--corpus"))
    for kind in ("content", "event"):
        if kind in metafunc.fixturenames:
            path = corpus / f"{kind}s.jsonl"
            lines = list(lines_of(path))
            names = [f"{path.name}:{number}" for number, _ in lines]
            metafunc.parametrize(kind, [line for _, line in lines], ids=names)


def test_content(content):
    passes(check_content, content)


def test_event(event):
    passes(check_event, event)


def passes(check, line):
    problem = problem_of(check, line)
    if problem is not None:
        pytest.fail(problem, pytrace=False)


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def problem_of(check, line):
    try:
        return check(json.loads(line))
    except ValueError as error:  # pydantic's and json's errors are ValueErrors
        return f"refused: {error}\n    {shorten(line.strip())}"


def check_content(sent):
    """A content travels as the new message of a run, where ADK forbids unknown fields."""
    request = RunAgentRequest.model_validate(
        {"appName": "app", "userId": "user", "sessionId": "session", "newMessage": sent}
    )
    if request.new_message is None:
        return "refused: there is no content"
    return first_difference(plain(dump(request.new_message)), plain(sent))


def check_event(sent):
    """ADK ignores unknown fields of an event, which the comparison finds."""
    written = dump(Event.model_validate(sent))
    for field in FILLED_IN:
        if field not in sent:
            written.pop(field, None)
    for field in ("actions", "nodeInfo"):
        if field in written:
            drop_defaults(written[field], sent[field])
    return first_difference(plain(written), plain(sent))


def dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def drop_defaults(written, sent):
    """Removes what Google added because the sender said nothing about it."""
    for field in list(written):
        if field not in sent and written[field] in ({}, ""):
            del written[field]


def plain(value, key=None, parent=None):
    """The value without the freedoms that the format has: base64's alphabet, the order of a set."""
    if isinstance(value, dict):
        return {name: plain(item, name, key) for name, item in value.items()}
    if isinstance(value, list):
        items = [plain(item, parent=key) for item in value]
        return sorted(items) if key == "longRunningToolIds" else items
    if isinstance(value, str) and is_bytes_field(key, parent):
        return canonical_base64(value)
    return value


def is_bytes_field(key, parent):
    return key == "thoughtSignature" or (key == "data" and parent == "inlineData")


def canonical_base64(text):
    standard = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True).hex()
    except binascii.Error:
        # Google's types refuse bad base64; this is a tool's own argument that bears the same name.
        return text


def first_difference(found, expected, path="$"):
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            place = f"{path}.{key}"
            if key not in found:
                return difference(place, "nothing", shorten(json.dumps(expected[key])))
            if key not in expected:
                return difference(place, shorten(json.dumps(found[key])), "nothing")
            inner = first_difference(found[key], expected[key], place)
            if inner is not None:
                return inner
        return None
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            inner = first_difference(*pair, f"{path}[{index}]")
            if inner is not None:
                return inner
        return None
    # Python takes true for 1; JSON does not.
    if found == expected and isinstance(found, bool) == isinstance(expected, bool):
        return None
    return difference(path, shorten(json.dumps(found)), shorten(json.dumps(expected)))


def difference(path, found, expected):
    return f"differs at {path}\n    Google wrote {found}\n    we wrote     {expected}"


def shorten(text):
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
