"""The whole, tried in a minute: every service on simulated outside worlds, seeded, with something going on.

    simulators ──► World ──► settings of each service ──► the server, as `holdfast serve` runs it
                     ▲                                        │ with one more service, `demo`:
                     └── what a person causes ── Try it ◄─────┘ seeds, keeps a little going, has the buttons

A service's scene is the file `scenes/<service>.py`, found by its place; see `holdfast.demo.scene`.
"""

from holdfast.demo.process import run_demo

__all__ = ["run_demo"]
