"""From a file, the environment and flags to frozen settings, or to every reason why not."""

from proxy.config.loader import Loaded, load, rows

__all__ = ["Loaded", "load", "rows"]
