"""An S3 server with a bucket, for the tests of files in buckets: moto's, on a free port that it prints.

`python buckets.py BUCKET [PORT] [--deny]`. With --deny it knows no access key, and refuses every request.

It also serves clients of Google Cloud Storage, whose XML interface is that of S3 but for the names of some headers.
"""

import sys

from moto import settings
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

# What Amazon's clients send; moto treats other requests as those of strangers.
SIGNED = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"

GOOGLE, AMAZON = "HTTP_X_GOOG_", "HTTP_X_AMZ_"


def main() -> None:
    bucket, *options = sys.argv[1:]
    port = next((int(option) for option in options if option.isdigit()), 0)
    served = DomainDispatcherApplication(create_backend_app)

    def application(environ, start_response):
        for name in [name for name in environ if name.startswith(GOOGLE)]:
            environ[AMAZON + name.removeprefix(GOOGLE)] = environ[name]
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
            environ["HTTP_AUTHORIZATION"] = SIGNED
        return served(environ, start_response)

    server = make_server("127.0.0.1", port, application, threaded=True)
    create(served, bucket)
    if "--deny" in options:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    print(f"listening on http://127.0.0.1:{server.port}", flush=True)
    server.serve_forever()


def create(served, bucket: str) -> None:
    from werkzeug.test import Client

    answer = Client(served).put(f"/{bucket}", base_url="http://127.0.0.1")
    assert answer.status_code == 200, answer.get_data(as_text=True)


if __name__ == "__main__":
    main()
