"""Flags that come from the table of settings, and the values that were given by them."""

import argparse
import os
from collections.abc import Mapping
from typing import Final

from vgpuscope import config

ANALYZER_SECTIONS: Final = ("analyzer", "prometheus", "thresholds", "scheduler", "log")


def add_setting_flags(parser: argparse.ArgumentParser, *, sections: tuple[str, ...]) -> None:
    """--config, and a flag for each setting of these sections that has one."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"Settings file in YAML; {config.NO_FILE} reads no file. [default: config.yaml in the working directory, "
        f"if it exists; env {config.FILE_VARIABLE}]",
    )
    for setting in config.SETTINGS:
        if setting.flag and setting.section in sections:
            parser.add_argument(
                *filter(None, (setting.flag, setting.short)),
                dest=setting.path,
                metavar=setting.placeholder or "|".join(setting.choices) or "VALUE",
                help=_help(setting),
            )
    for row in config.renamed_settings():  # accepted until they are removed, and not shown
        if row.name.partition(".")[0] in sections and row.instead:
            parser.add_argument(config.flag(row.name), dest=row.name, help=argparse.SUPPRESS)


def settings_file(args: argparse.Namespace) -> config.SettingsFile:
    """The settings file to read: --config, the environment variable, or config.yaml."""
    return config.settings_file(args.config, os.environ, sections=config.Config.__struct_fields__)


def given(args: argparse.Namespace) -> Mapping[str, object]:
    """The settings that were given as flags, by path."""
    paths = (*(setting.path for setting in config.SETTINGS), *(row.name for row in config.renamed_settings()))
    return {path: value for path in paths if (value := getattr(args, path, None)) is not None}


def loaded(args: argparse.Namespace, *, sections: tuple[str, ...] = ()) -> config.Loaded:
    """The configuration in effect; aliases of variables are read for these sections only."""
    file = settings_file(args).path
    return config.load(flags=given(args), environ=os.environ, file=file, sections=sections)


def of_service(args: argparse.Namespace, *, sections: tuple[str, ...]) -> tuple[config.Config, config.SettingsFile]:
    """The configuration of a service, and what its log says of where it came from."""
    found = loaded(args, sections=(*sections, "log", "logging"))
    return found.config, settings_file(args)._replace(deprecated=found.deprecated)


def _help(setting: config.Setting) -> str:
    names = ", ".join((setting.env, *setting.aliases))
    return f"{setting.description} [default: {setting.default_text}; env {names}]".replace("%", "%%")
