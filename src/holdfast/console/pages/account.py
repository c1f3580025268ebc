"""One's own page: who one is here, a new password, signing out everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.kit.access import SessionCaller, User
from holdfast.kit.access.authorization import PERSON
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest


def pages(runtime: Runtime) -> list[Page]:
    async def you(ask: PageRequest) -> Mapping[str, Any]:
        # The name of an identity is its issuer's word, and may be that of a user here who is somebody else.
        if not isinstance(ask.caller, SessionCaller) or ask.caller.identity:
            return {"user": None}
        found = await runtime.store.privileged().get(User, ask.caller.name)
        return {"user": found.doc if found else None}

    return [Page(path="/you", title="You", template="you.html", data=you, nav=False, needs=PERSON)]
