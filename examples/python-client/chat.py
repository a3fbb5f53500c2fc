"""A chat with the bridge from a terminal: prints answers as they come, and asks before a tool runs that needs approval.

usage: python3 chat.py "pay Hanako 50 dollars"
"""

import json
import os
import sys
import urllib.request
import uuid

BRIDGE = os.environ.get("ADK_BRIDGE_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("ADK_BRIDGE_KEY")


def main(text):
    chat = str(uuid.uuid4())
    message = {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}
    while message is not None:
        for chunk in post(chat, message):
            show(chunk)
        message = decided(chat)


def post(chat, message):
    """Sends one message, and yields the chunks of the answer as they come."""
    body = json.dumps({"id": chat, "messages": [message]}).encode()
    with ask("/api/chat", body) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))


def show(chunk):
    match chunk["type"]:
        case "text-delta":
            print(chunk["delta"], end="", flush=True)
        case "text-end":
            print()
        case "tool-input-available":
            print(f"[{chunk['toolName']} {json.dumps(chunk['input'])}]")
        case "tool-output-available":
            print(f"[-> {json.dumps(chunk['output'])}]")
        case "error":
            sys.exit(chunk["errorText"])


def decided(chat):
    """The last message with the user's decisions in it, if tools wait for them."""
    with ask(f"/api/chats/{chat}") as answer:
        message = json.load(answer)["messages"][-1]
    asking = [part for part in message["parts"] if part.get("state") == "approval-requested"]
    for part in asking:
        answer = input("Allow? [y/N] ")
        part["state"] = "approval-responded"
        part["approval"]["approved"] = answer.strip().lower() in ("y", "yes")
    return message if asking else None


def ask(path, body=None):
    request = urllib.request.Request(BRIDGE + path, body, {"content-type": "application/json"})
    if KEY:
        request.add_header("authorization", f"Bearer {KEY}")
    return urllib.request.urlopen(request)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
