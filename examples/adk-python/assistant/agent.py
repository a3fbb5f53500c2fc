"""An agent that books tables: it asks a human before it books, and has its user log in before it reads a profile.

Nothing in it knows of the bridge.
"""

import os

import requests
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools import FunctionTool, ToolContext

# Google's own, unless the environment names another provider.
AUTHORIZE_URL = os.environ.get("OAUTH_AUTHORIZE_URL", "https://accounts.google.com/o/oauth2/v2/auth")
TOKEN_URL = os.environ.get("OAUTH_TOKEN_URL", "https://oauth2.googleapis.com/token")
PROFILE_URL = os.environ.get("OAUTH_PROFILE_URL", "https://openidconnect.googleapis.com/v1/userinfo")

LOGIN = AuthConfig(
    auth_scheme=OAuth2(
        flows=OAuthFlows(
            authorizationCode=OAuthFlowAuthorizationCode(
                authorizationUrl=AUTHORIZE_URL, tokenUrl=TOKEN_URL, scopes={"openid": "who you are"}
            )
        )
    ),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2,
        oauth2=OAuth2Auth(
            client_id=os.environ.get("OAUTH_CLIENT_ID"), client_secret=os.environ.get("OAUTH_CLIENT_SECRET")
        ),
    ),
    credential_key="login",
)


def book_table(restaurant: str, guests: int) -> dict:
    """Books a table for today."""
    return {"booked": restaurant, "guests": guests}


def read_profile(tool_context: ToolContext) -> dict:
    """Reads the profile of the user at the provider."""
    credential = tool_context.get_auth_response(LOGIN)
    if not credential or not credential.oauth2.access_token:
        tool_context.request_credential(LOGIN)
        return {"pending": True}
    headers = {"authorization": f"Bearer {credential.oauth2.access_token}"}
    answer = requests.get(PROFILE_URL, headers=headers, timeout=10)
    answer.raise_for_status()
    return {"user": answer.json()["sub"]}


root_agent = LlmAgent(
    name="assistant",
    model=os.environ.get("MODEL", "gemini-flash-latest"),
    instruction="You book tables, and know who your user is. Use your tools.",
    tools=[FunctionTool(book_table, require_confirmation=True), read_profile],
)
