"""The contract suite: the promises of a store as tests that any engine can inherit.

An engine's own test file makes the engine and states its capabilities:

    class TestMine(StoreContract):
        capabilities = Capabilities(name="mine", embedded=True)

        @pytest.fixture
        def harness(self, tmp_path: Path) -> EngineHarness:
            return EngineHarness(my_engine.connect, f"mine:///{tmp_path}/data")

The harness is made once per test and must name an empty database each time. The suite needs pytest with
pytest-asyncio in its automatic mode, and hypothesis.
"""

import pkgutil

import pytest

# Failed asserts then show their values, also in an engine's own repository.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from holdfast.store.contract.harness import EngineHarness  # noqa: E402
from holdfast.store.contract.suite import StoreContract  # noqa: E402

__all__ = ["EngineHarness", "StoreContract"]
