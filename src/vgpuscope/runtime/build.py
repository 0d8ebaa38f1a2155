"""The build of the running program."""

import platform
import sys

from vgpuscope.version import BUILD_DATE, REVISION, __version__
from vgpuscope.views.build import Build


def this_build() -> Build:
    """The version and build that every process reports."""
    return Build(
        version=__version__,
        revision=REVISION,
        build_date=BUILD_DATE,
        python_version=f"python{platform.python_version()}",
        compiler=sys.implementation.name,
        platform=f"{sys.platform}/{platform.machine()}",
    )
