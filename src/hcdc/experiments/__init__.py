"""The demos and the recorded experiments."""

from hcdc.experiments._demo import Demo, run_demo
from hcdc.experiments._image_demo import run_image_demo

__all__ = ["Demo", "run_demo", "run_image_demo"]
