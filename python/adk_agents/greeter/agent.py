"""An agent whose instruction needs the session's state: it tells what it was instructed, and what its tools see."""

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from scripted.agent import say


class TellingModel(BaseLlm):
    """Says its instruction."""

    model: str = "telling"

    async def generate_content_async(self, llm_request, stream=False):
        instruction = llm_request.config.system_instruction
        async for response in say(instruction.splitlines()[0], stream):
            yield response


root_agent = LlmAgent(
    name="greeter",
    model=TellingModel(),
    instruction="Help {user_name} with {page?} as {role?}.",
)
