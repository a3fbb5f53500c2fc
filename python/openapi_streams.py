"""For schemathesis: every event of a stream is what the description says that the stream consists of, and an answer that leads
elsewhere is judged itself."""

import json

import jsonschema
import referencing
import schemathesis
from referencing.jsonschema import DRAFT202012


def validator(document, schema):
    """Judges values by a schema of a document, whose references are into that document."""
    registry = referencing.Registry().with_resource("urn:document", DRAFT202012.create_resource(document))
    absolute = json.loads(json.dumps(schema).replace('"#/', '"urn:document#/'))
    return jsonschema.Draft202012Validator(absolute, registry=registry)


def events(text):
    """The data of each event of a whole stream."""
    pieces = text.split("\n\n")
    assert pieces.pop() == "", f"the stream breaks off: {text[-200:]!r}"
    # Comments keep connections alive.
    pieces = [piece for piece in pieces if not piece.startswith(":")]
    assert all(piece.startswith("data: ") for piece in pieces), text
    return [piece.removeprefix("data: ") for piece in pieces]


def check_stream(judge, text):
    *chunks, last = events(text)
    assert last == "[DONE]", f"the stream ends with {last!r}"
    for chunk in chunks:
        problem = jsonschema.exceptions.best_match(judge.iter_errors(json.loads(chunk)))
        assert problem is None, f"{problem.message} in {chunk}"


@schemathesis.hook
def before_call(ctx, case, kwargs):
    # What a provider answers is not described here.
    kwargs["allow_redirects"] = False


@schemathesis.check
def streams_are_of_chunks(ctx, response, case):
    kind = response.headers.get("content-type", [""])[0]
    if not kind.startswith("text/event-stream") or case.method == "HEAD":
        return
    document = case.operation.schema.raw_schema
    check_stream(validator(document, {"$ref": "#/components/schemas/Chunk"}), response.text)
