"""The promises of a store, as tests that any engine can be put to.

An engine's own test file says how to reach it and what it claims to be; all else is inherited:

    class TestMine(StoreContract):
        capabilities = Capabilities(name="mine", embedded=True)

        @pytest.fixture
        def home(self, tmp_path: Path) -> Home:
            return Home(my_engine.connect, f"mine:///{tmp_path}/data")

`home` is asked once per test and must name an empty place each time. The suite needs pytest with
pytest-asyncio in its automatic mode, and hypothesis.
"""

import pkgutil

import pytest

# Failed asserts then show their values, also in an engine's own repository.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.store.contract.harness import EngineHarness  # noqa: E402
from holdfast.store.contract.suite import StoreContract  # noqa: E402

__all__ = ["EngineHarness", "StoreContract"]
