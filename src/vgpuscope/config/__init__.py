"""The configuration: sections with their settings, and how values for them are found."""

from vgpuscope.config.agent import AgentConfig
from vgpuscope.config.analyzer import AnalyzerConfig
from vgpuscope.config.cluster import ClusterConfig
from vgpuscope.config.extender import ExtenderConfig
from vgpuscope.config.files import (
    FILE_VARIABLE,
    NO_FILE,
    WORKING_DIRECTORY,
    DeprecatedUse,
    SettingsFile,
    named_file,
    settings_file,
    tell_deprecated,
    tell_file,
)
from vgpuscope.config.loading import (
    SETTINGS,
    Config,
    Loaded,
    Setting,
    flag,
    load,
    pods_source,
    renamed_settings,
    settings_of,
)
from vgpuscope.config.plugin import PluginConfig
from vgpuscope.config.shared import LogConfig

__all__ = [
    "FILE_VARIABLE",
    "NO_FILE",
    "SETTINGS",
    "WORKING_DIRECTORY",
    "AgentConfig",
    "AnalyzerConfig",
    "ClusterConfig",
    "Config",
    "DeprecatedUse",
    "ExtenderConfig",
    "Loaded",
    "LogConfig",
    "PluginConfig",
    "Setting",
    "SettingsFile",
    "flag",
    "load",
    "named_file",
    "pods_source",
    "renamed_settings",
    "settings_file",
    "settings_of",
    "tell_deprecated",
    "tell_file",
]
