"""Patches compared with the repository before people vote on them: the base commit and true diffs.

GitHub is asked before anything is committed. Where it can't be asked, the patch stands without a diff.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from holdfast.errors import HoldfastError, InvalidError, TooLargeError
from holdfast.services.gwi.agents.code_host import CodeHost
from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.domain.changes import DIFF_CHARACTERS_MAX, action_of
from holdfast.services.gwi.domain.diffs import diff_of
from holdfast.services.gwi.domain.patches import FileChange
from holdfast.services.gwi.models.tenants import repo_id_of
from holdfast.services.gwi.models.work import WorkItem
from holdfast.services.gwi.run_execution import CodeHosts

PREPARE_S: Final = 15.0
log = structlog.get_logger("holdfast.gwi")


class PatchPreparation:
    """Completes patches by what the repository has.

    Example: `patch = await preparation.prepare(item, patch)`
    """

    def __init__(self, hosts: CodeHosts) -> None:
        self._hosts = hosts

    async def prepare(self, item: WorkItem, patch: PatchRequest) -> PatchRequest:
        """The patch with its base commit and diffs; a diff that came with it is not believed.

        InvalidError for a patch that changes nothing, or deletes what is not there.
        """
        bare = msgspec.structs.replace(
            patch, changes=[msgspec.structs.replace(one, diff=None) for one in patch.changes]
        )
        if item.repo is None or item.repo.id is None:
            return bare
        try:
            async with asyncio.timeout(PREPARE_S):
                host = await self._hosts.host(item.tenant_id, repo_id_of(item.repo.id))
                return await _compared(host, bare)
        except (HoldfastError, TimeoutError) as fault:
            if isinstance(fault, InvalidError) and not isinstance(fault, TooLargeError):
                raise
            said = fault.message if isinstance(fault, HoldfastError) else "GitHub did not answer in time"
            log.info("patch not compared", item=item.id, reason=said)
            return bare


async def _compared(host: CodeHost, patch: PatchRequest) -> PatchRequest:
    base = patch.base_commit or await host.tip(host.default_branch)
    tree = await host.tree(base)
    changes: list[FileChange] = []
    for place, one in enumerate(patch.changes):
        old = (await host.blob(tree[one.file].sha)).decode(errors="replace") if one.file in tree else None
        new = None if one.action == "delete" else one.content or ""
        if old is None and new is None:
            raise InvalidError(f"{one.file!r} does not exist at {base[:7]}", f"patch.changes[{place}]")
        diff = diff_of(one.file, old, new)
        changes.append(msgspec.structs.replace(
            one, action=action_of(old, new), diff=diff if len(diff) <= DIFF_CHARACTERS_MAX else None
        ))  # fmt: skip
        if old == new and len(patch.changes) == 1:
            raise InvalidError(f"{one.file!r} is the same at {base[:7]}: there is nothing to change", "patch")
    return msgspec.structs.replace(patch, base_commit=base, changes=changes)
