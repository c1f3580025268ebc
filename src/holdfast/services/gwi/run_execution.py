"""How runs are started and executed: the workflows over agents, GitHub and a language model."""

from __future__ import annotations

from holdfast.errors import ConfigError, NotFoundError
from holdfast.kit.runs import Join
from holdfast.providers.github import GithubApp
from holdfast.providers.language_model import LanguageModel
from holdfast.providers.rest import CallLimits
from holdfast.service import Context, RunPart
from holdfast.services.gwi.agents.code_host import CodeHost
from holdfast.services.gwi.agents.registry import load_agents
from holdfast.services.gwi.candidate_application import CandidateApplication
from holdfast.services.gwi.models.runs import RUNS
from holdfast.services.gwi.models.tenants import Repo, Tenant
from holdfast.services.gwi.run_records import RunRecords
from holdfast.services.gwi.run_starts import RunStarts
from holdfast.services.gwi.settings import GwiSettings
from holdfast.services.gwi.workflow import AgentWorkflows
from holdfast.store import Store


class CodeHosts:
    """The repositories of tenants, each as its tenant's installation of the App."""

    def __init__(self, store: Store, app: GithubApp | None) -> None:
        self._store, self._app = store, app

    async def host(self, tenant_id: str, repo_id: str) -> CodeHost:
        """A tenant's repository; ConfigError without the App, NotFoundError where it is not installed."""
        if self._app is None:
            raise ConfigError("no GitHub App is set up; set app_id and app_key")
        store = self._store.tenant(tenant_id)
        tenant, repo = await store.get(Tenant, tenant_id), await store.get(Repo, tenant_id, repo_id)
        if tenant is None or repo is None or not tenant.doc.installation_id:
            raise NotFoundError(f"the GitHub App is not installed for {repo_id!r}; install it")
        client = self._app.installation(tenant.doc.installation_id)
        return CodeHost(client, repo.doc.github_full_name, default_branch=repo.doc.default_branch)


class RunExecution:
    """Everything that runs need, for a whole process.

    Example: `Parts(runs=[execution.part])`
    """

    def __init__(self, context: Context, app: GithubApp | None) -> None:
        settings: GwiSettings = context.settings
        store, records = context.store, RunRecords(audits=context.audit, meters=context.meter)
        self.hosts = CodeHosts(store, app)
        self.workflows = AgentWorkflows(
            store, load_agents(), hosts=self.hosts.host, audits=context.audit, model=model_of(context),
            run_tokens_max=settings.run_tokens_max,
        )  # fmt: skip
        self.starts = RunStarts(store, self.workflows.by_type, audits=context.audit, meters=context.meter)
        self.application = CandidateApplication(self.starts, context.audit)
        self.joins: list[Join] = [records.join, self.application.join]

    @property
    def part(self) -> RunPart:
        return RunPart(models=RUNS, joins=self.joins, workflows=list(self.workflows.by_type.values()))


def app_of(context: Context) -> GithubApp | None:
    settings: GwiSettings = context.settings
    if not settings.app_id or not settings.app_key:
        return None
    return GithubApp(
        context.http_session, settings.app_id, settings.app_key, clock=context.clock,
        base_url=settings.github_url,
    )  # fmt: skip


def model_of(context: Context) -> LanguageModel | None:
    settings: GwiSettings = context.settings
    if not settings.model_url or not settings.model_name:
        return None
    return LanguageModel(
        context.http_session, settings.model_key, clock=context.clock, base_url=settings.model_url,
        model=settings.model_name, format=settings.model_format,
        limits=CallLimits(call_s=settings.model_s),
    )  # fmt: skip
