"""A real git repository, made by a test and shown to the simulated GitHub."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from holdfast.simulators.github import (
    AddRepository,
    GithubSimulator,
    Install,
    OpenPull,
    PushFiles,
    ShowRepository,
)

REPO_NAME = "acme/shop"
_CLEAR = "\n\n\ndef clear(items):\n    items.clear()\n"
BASE = {
    "README.md": "# Shop\n\nIt sells.\n",
    "src/cart.py": f"import json\n\n\ndef total(items):\n    return sum(items){_CLEAR}",
    "src/price.py": "PRICE = 1\n",
}
FEATURE = {
    "src/cart.py": BASE["src/cart.py"].replace("json\n", "json\nimport re\n") + "    return items\n",
    "src/new.py": "NEW = True\n",
}
MAIN = {
    "README.md": "# Shop\n\nIt sells much.\n",
    "src/cart.py": f"import json\nimport sys\n\n\ndef total(items):\n    return sum(items, 0){_CLEAR}",
}
CLASH = {"src/price.py": "PRICE = 2\n"}
OTHER_CLASH = {"src/price.py": "PRICE = 3\n"}


class GitRepository:
    """A working copy with `main` and `feature`, which both changed since they parted."""

    def __init__(self, folder: Path, *, clash: bool = False) -> None:
        self.folder = folder
        self.main = MAIN | (CLASH if clash else {})
        self.feature = FEATURE | (OTHER_CLASH if clash else {})
        self.git("init", "-q", "-b", "main")
        self._commit(BASE, "Begin")
        self.git("checkout", "-q", "-b", "feature")
        self._commit(self.feature, "A feature")
        self.git("checkout", "-q", "main")
        self._commit(self.main, "Meanwhile")

    def git(self, *arguments: str) -> str:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.com",
        }  # fmt: skip
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, check=False, capture_output=True, text=True
        )
        return done.stdout

    def _commit(self, files: dict[str, str], message: str) -> None:
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def merged(self) -> dict[str, str]:
        """The files after git's own merge of main into feature, with the additions of both to lists."""
        (self.folder / ".git/info").mkdir(exist_ok=True)
        (self.folder / ".git/info/attributes").write_text("*.py merge=union\n")
        self.git("checkout", "-q", "feature")
        self.git("merge", "-q", "--no-edit", "main")
        listed = self.git("ls-files").split()
        return {path: (self.folder / path).read_text() for path in listed}


def show_to(github: GithubSimulator, repository: GitRepository) -> int:
    """The repository at GitHub, with the App installed and a pull request; return the installation."""
    github.run(AddRepository(name=REPO_NAME, files=BASE))
    github.run(PushFiles(repo=REPO_NAME, branch="feature", files=dict(repository.feature)))
    github.run(PushFiles(repo=REPO_NAME, branch="main", files=dict(repository.main)))
    github.run(OpenPull(repo=REPO_NAME, title="A feature", head="feature"))
    installation: Any = github.run(Install(account="acme"))
    return int(installation["id"])


def shown(github: GithubSimulator) -> dict[str, Any]:
    """Branches with files, issues, pull requests and comments at GitHub."""
    repository: Any = github.run(ShowRepository(repo=REPO_NAME))
    return dict(repository)
