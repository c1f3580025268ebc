"""The demo: every service on simulated outside services, with sample data and some activity.

    simulators ──► SimulatorSet ──► settings of each service ──► the server, as `holdfast serve` runs it
                        ▲                                           │ with one more service, `demo`:
                        └───────── a person's controls ── Try it ◄──┘ sample data, activity, buttons

A service's scene is the file `scenes/<service>.py`, discovered by its name; see `holdfast.demo.scene`.
"""

from holdfast.demo.process import run_demo

__all__ = ["run_demo"]
