"""The demo and the recorded protocols."""

from hcdc.experiments._demo import Demo, run_demo

__all__ = ["Demo", "run_demo"]
