"""The simulated CANN for a child process: which libraries it finds, and which devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.cann_sim.build import build, why_not

__all__ = ["Simulator", "simulator", "why_not"]


@dataclass(frozen=True)
class Simulator:
    """A built simulator; `home` is what ASCEND_HOME_PATH names."""

    home: Path

    def environment(
        self,
        *,
        soc: str = "Ascend910B3",
        devices: int = 1,
        hbm_mib: int = 4096,
        faults: str = "",
        costs: str = "",
        ledger: Path | None = None,
        home: Path | None = None,
    ) -> dict[str, str]:
        """Return the environment of a process that trains on simulated devices.

        `ledger` is a file shared by processes that share the devices; `home` is where the process
        writes its ascend/log, else the user's own home would fill.
        """
        env = dict(os.environ)
        env.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
        old = env.get("LD_LIBRARY_PATH", "")
        env.update(
            LD_LIBRARY_PATH=f"{self.home / 'lib64'}{':' + old if old else ''}",
            ASCEND_HOME_PATH=str(self.home),
            ASCEND_OPP_PATH=str(self.home / "opp"),
            CANN_SIM_SOC=soc,
            CANN_SIM_DEVICES=str(devices),
            CANN_SIM_HBM_MIB=str(hbm_mib),
            CANN_SIM_FAULTS=faults,
            CANN_SIM_COSTS=costs,
            CANN_SIM_LEDGER=str(ledger or ""),
        )
        if home is not None:
            env["HOME"] = str(home)
        return env


def simulator() -> Simulator:
    """Return the simulator of these sources, built when it is not there yet; raises BuildError."""
    return Simulator(build() / "home")
