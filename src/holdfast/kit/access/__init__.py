"""Access control: permissions by the model's rules, API tokens, OIDC, and users with passwords."""

from holdfast.kit.access.access_gate import Gate
from holdfast.kit.access.login_throttle import LoginAttempt, LoginThrottle
from holdfast.kit.access.models import ApiToken, TokenRole
from holdfast.kit.access.roles import Roles
from holdfast.kit.access.scopes import covers
from holdfast.kit.access.sessions import COOKIE, Session, SessionCaller, Sessions
from holdfast.kit.access.sign_in_links import SignInLink, SignInLinks
from holdfast.kit.access.tokens import ApiTokens, TokenCaller
from holdfast.kit.access.users import Setup, User, UserRole, Users
from holdfast.kit.access.visitors import CurrentVisitor, VisitorCaller, VisitorSession, VisitorSessions

__all__ = [
    "COOKIE",
    "ApiToken",
    "ApiTokens",
    "CurrentVisitor",
    "Gate",
    "LoginAttempt",
    "LoginThrottle",
    "Roles",
    "Session",
    "SessionCaller",
    "Sessions",
    "Setup",
    "SignInLink",
    "SignInLinks",
    "TokenCaller",
    "TokenRole",
    "User",
    "UserRole",
    "Users",
    "VisitorCaller",
    "VisitorSession",
    "VisitorSessions",
    "covers",
]
