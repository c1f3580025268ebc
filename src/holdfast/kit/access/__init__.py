"""Who may do what: the model's rules in one place for all surfaces, roles from the store, API tokens."""

from holdfast.kit.access.gate import Gate
from holdfast.kit.access.models import ApiToken, TokenRole
from holdfast.kit.access.roles import Roles
from holdfast.kit.access.scopes import covers
from holdfast.kit.access.tokens import TokenCaller, Tokens

__all__ = ["ApiToken", "Gate", "Roles", "TokenCaller", "TokenRole", "Tokens", "covers"]
