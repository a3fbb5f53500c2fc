"""An agent whose toolset needs a login (LOGIN_ISSUER) before its model is asked anything."""

from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.base_toolset import BaseToolset
from scripted.agent import ScriptedModel
from vault.agent import login, owner, token_of

LOGIN = login("mailbox", {"openid": "who you are", "mail": "reads your mail"})


def read_inbox(tool_context: ToolContext) -> dict:
    """Reads the inbox of the user."""
    # google-adk 1.18.0 does not ask, and has nothing to give.
    get = getattr(tool_context, "get_credential", lambda _key: None)
    token = token_of(get(LOGIN.credential_key))
    return owner(token) if token else {"error": "there is no login"}


class Mailbox(BaseToolset):
    """One tool, and a login for all of them."""

    async def get_tools(self, readonly_context=None):
        return [FunctionTool(read_inbox)]

    def get_auth_config(self):
        return LOGIN


root_agent = LlmAgent(name="mailbox", model=ScriptedModel(), tools=[Mailbox()])
