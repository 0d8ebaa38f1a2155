"""The configuration: sections with their settings, and how values for them are found."""

from vgpuscope.config.agent import AgentConfig
from vgpuscope.config.cluster import ClusterConfig
from vgpuscope.config.loading import (
    FILE_VARIABLE,
    SETTINGS,
    Config,
    Loaded,
    Setting,
    load,
    pods_source,
    settings_of,
)
from vgpuscope.config.shared import LogConfig

__all__ = [
    "FILE_VARIABLE",
    "SETTINGS",
    "AgentConfig",
    "ClusterConfig",
    "Config",
    "Loaded",
    "LogConfig",
    "Setting",
    "load",
    "pods_source",
    "settings_of",
]
