"""What one user's flood costs another one's turn: run by hand, `python python/bench_fairness.py target/release/adk-bridge`.

Prints the median time of a turn of B alone, and during each flood of A (or of somebody without a key), and their ratio.
Times of a busy machine say little; the ratio within one run does.
"""

import asyncio
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

KEYS = {"a": "a-key-of-alice-0123456789", "b": "a-key-of-bob-9876543210"}
TURNS = 15
FLOOD_SECONDS = 1.0


def request(method: str, path: str, key: str | None, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    if key:
        head += f"authorization: Bearer {key}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + body


def says(chat: str, text: str) -> bytes:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    return json.dumps({"id": chat, "messages": [message]}).encode()


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await reader.read(-1)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def turn(port: int, number: int, name: str) -> float:
    began = time.monotonic()
    answer = await ask(port, request("POST", "/api/chat", KEYS["b"], says(f"{name}-{number}", "long 20")))
    assert b"[DONE]" in answer and b'"error"' not in answer, answer[-300:]
    return time.monotonic() - began


async def turns(port: int, name: str) -> float:
    return statistics.median([await turn(port, number, name) for number in range(TURNS)])


async def wrong_answers(port: int) -> bytes:
    question = says("asked", 'call process_payment {"amount":5,"recipient":"x"}')
    await ask(port, request("POST", "/api/chat", KEYS["a"], question))
    answer = await ask(port, request("GET", "/api/chats/asked", KEYS["a"]))
    message = json.loads(answer.split(b"\r\n\r\n", 1)[1])["messages"][1]
    part = {"type": "tool-pay", "state": "approval-responded", "input": {}}
    message["parts"] = [
        part | {"toolCallId": f"c{number}", "approval": {"id": f"a{number}", "approved": True}}
        for number in range(10_000)
    ]
    return request("POST", "/api/chat", KEYS["a"], json.dumps({"id": "asked", "messages": [message]}).encode())


async def looping(port: int, data: bytes, pause: float = 0.0) -> None:
    while True:
        await ask(port, data)
        await asyncio.sleep(pause)


async def silent(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await asyncio.sleep(3600)
    finally:
        writer.close()


async def during(port: int, name: str, flood: list, alone: float) -> None:
    tasks = [asyncio.create_task(one) for one in flood]
    await asyncio.sleep(FLOOD_SECONDS)
    median = await turns(port, name.replace(" ", "-"))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(f"{name:<40} {median * 1000:8.1f} ms  {median / alone:5.2f} times", flush=True)


async def measure(port: int) -> None:
    await turns(port, "warm")
    alone = await turns(port, "alone")
    print(f"{'alone':<40} {alone * 1000:8.1f} ms", flush=True)
    answers = await wrong_answers(port)
    title = json.dumps({"title": "renamed"}).encode()
    long = [request("POST", "/api/chat", KEYS["a"], says(f"long-{number}", "slow 200")) for number in range(100)]
    upload = request("POST", "/api/files?chat=asked", KEYS["a"], b"[" + b"1," * 100_000 + b"1]")
    floods = {
        "10,000 wrong answers, 8 connections": [looping(port, answers) for _ in range(8)],
        "wrong keys, 8 connections": [looping(port, request("GET", "/api/chats", "wrong" * 5)) for _ in range(8)],
        "1,000 silent connections": [silent(port) for _ in range(1000)],
        "renaming a chat, 8 connections": [
            looping(port, request("PATCH", "/api/chats/asked", KEYS["a"], title)) for _ in range(8)
        ],
        "200 kB uploads, 8 connections": [looping(port, upload) for _ in range(8)],
        "150 turns of 200 slow words": [looping(port, long[number % 100], 1.0) for number in range(150)],
    }
    for name, flood in floods.items():
        await during(port, name, flood, alone)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        keys = "".join(f'[[auth.api_keys]]\nkey = "{key}"\nuser = "{user}"\n' for user, key in KEYS.items())
        config = pathlib.Path(directory, "bench.toml")
        config.write_text(keys + '[demo]\npace = "3ms"\n')
        command = [
            sys.argv[1],
            "serve",
            "--config",
            str(config),
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            f"{directory}/data",
        ]
        with open(f"{directory}/log", "w") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            port = int(server.stdout.readline().rsplit(":", 1)[1])
            asyncio.run(measure(port))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
