"""Where independent tasks run: in this process, or on the machines of a Ray cluster. Knows nothing of what they do."""

from hush.engines.engine import ENGINES, Engine, Local, engine_of
from hush.engines.on_ray import Ray
from hush.engines.sweeps import sweep

__all__ = ["ENGINES", "Engine", "Local", "Ray", "engine_of", "sweep"]
