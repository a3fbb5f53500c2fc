#!/bin/sh
# A chat with the bridge by curl alone: a question, a tool that asks for approval, and the decision.
set -eu

bridge=${ADK_BRIDGE_URL:-http://127.0.0.1:8080}
chat=curl-$$

post() {
    curl --silent --show-error --fail-with-body --no-buffer "$bridge/api/chat" -H 'content-type: application/json' -d "$1"
}

say() {
    post "{\"id\":\"$chat\",\"messages\":[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"$1\"}]}]}"
}

# The value of a field, in the first line that has it.
field() {
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

say 'what is the weather in Tokyo'

asked=$(say 'pay Hanako 50 dollars')
echo "$asked"

# The smallest answer: the message that asked, the part of its call, and the decision.
message=$(echo "$asked" | field messageId)
approval=$(echo "$asked" | field approvalId)
call=$(echo "$asked" | grep '"approvalId"' | field toolCallId)
part="{\"type\":\"tool-process_payment\",\"toolCallId\":\"$call\",\"state\":\"approval-responded\",\"input\":{},\"approval\":{\"id\":\"$approval\",\"approved\":${1:-true}}}"
post "{\"id\":\"$chat\",\"messages\":[{\"id\":\"$message\",\"role\":\"assistant\",\"parts\":[$part]}]}"
