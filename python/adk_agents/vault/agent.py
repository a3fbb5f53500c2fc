"""An agent whose tools need what only the user can give: logins at a provider (LOGIN_ISSUER), a key and a password."""

import os

import requests
from fastapi.openapi.models import (
    APIKey,
    APIKeyIn,
    HTTPBase,
    HTTPBearer,
    OAuth2,
    OAuthFlowAuthorizationCode,
    OAuthFlows,
)
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools import ToolContext
from google.adk.version import __version__
from scripted.agent import ScriptedModel, get_weather

ISSUER = os.environ.get("LOGIN_ISSUER", "http://127.0.0.1:9")
# What no user may ever see.
CLIENT_SECRET = os.environ.get("LOGIN_CLIENT_SECRET", "PLANTED-CLIENT-SECRET")
# The oldest version forgets a key when it asks, and makes one from what is asked for.
KEEPS_KEYS = not __version__.startswith("1.18.")


def client(kind, **options):
    options = {"client_id": "vault", "client_secret": CLIENT_SECRET, **options}
    return AuthCredential(auth_type=kind, oauth2=OAuth2Auth(**options))


def login(key, scopes, **options):
    flow = OAuthFlowAuthorizationCode(authorizationUrl=f"{ISSUER}/auth", tokenUrl=f"{ISSUER}/token", scopes=scopes)
    return AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
        raw_auth_credential=client(AuthCredentialTypes.OAUTH2, **options),
        credential_key=key if KEEPS_KEYS else None,
    )


MAIL = login("mail", {"openid": "who you are", "mail": "reads your mail"})
NEWS = login("news", {"openid": "who you are"})
# The provider gives this client nothing without PKCE.
DIARY = login("diary", {"openid": "who you are"}, client_id="vault-pkce", code_challenge_method="S256")
IDENTITY = AuthConfig(
    auth_scheme=OpenIdConnectWithConfig(
        authorization_endpoint=f"{ISSUER}/auth", token_endpoint=f"{ISSUER}/token", scopes=["openid"]
    ),
    raw_auth_credential=client(AuthCredentialTypes.OPEN_ID_CONNECT),
    credential_key="identity",
)
KEY = AuthConfig(auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "x-key"}), credential_key="key")
BASIC = AuthConfig(auth_scheme=HTTPBase(scheme="basic"), credential_key="basic")
BEARER = AuthConfig(auth_scheme=HTTPBearer(), credential_key="bearer")


def token_of(credential):
    return credential.oauth2.access_token if credential and credential.oauth2 else None


def whose(config, tool_context):
    """Whose access token the user has granted, or that it has to be asked for."""
    token = token_of(tool_context.get_auth_response(config))
    if not token:
        tool_context.request_credential(config)
        return {"pending": True}
    return owner(token)


def owner(token):
    answer = requests.get(f"{ISSUER}/me", headers={"authorization": f"Bearer {token}"}, timeout=10)
    return {"of": answer.json().get("sub"), "status": answer.status_code}


def read_mail(tool_context: ToolContext) -> dict:
    """Reads mail of the user."""
    return whose(MAIL, tool_context)


def read_news(tool_context: ToolContext) -> dict:
    """Reads news of the user."""
    return whose(NEWS, tool_context)


def read_diary(tool_context: ToolContext) -> dict:
    """Reads the diary of the user."""
    return whose(DIARY, tool_context)


def who_am_i(tool_context: ToolContext) -> dict:
    """Tells who the user is."""
    return whose(IDENTITY, tool_context)


def given(config, tool_context, secret_of):
    credential = tool_context.get_auth_response(config)
    if credential is None:
        tool_context.request_credential(config)
        return {"pending": True}
    # The secret itself must not come back.
    return {"length": len(secret_of(credential))}


def use_key(tool_context: ToolContext) -> dict:
    """Needs a key."""
    return given(KEY, tool_context, lambda credential: credential.api_key)


def use_password(tool_context: ToolContext) -> dict:
    """Needs a name and a password."""
    return given(BASIC, tool_context, lambda it: it.http.credentials.username + it.http.credentials.password)


def use_token(tool_context: ToolContext) -> dict:
    """Needs a token."""
    return given(BEARER, tool_context, lambda credential: credential.http.credentials.token)


root_agent = LlmAgent(
    name="vault",
    model=ScriptedModel(),
    tools=[get_weather, read_mail, read_news, read_diary, who_am_i, use_key, use_password, use_token],
)
