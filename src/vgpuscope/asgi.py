"""The analyzer for an ASGI server: `uvicorn vgpuscope.asgi:app --host HOST --port PORT`, as gpu-oour's `main:app`.

Settings come from environment variables and the settings file; `analyzer.listen` is ignored.
"""

import os

from vgpuscope import config
from vgpuscope.model.service import ANALYZER_PORT, everywhere
from vgpuscope.services.analyzer import process as analyzer
from vgpuscope.services.frame import Plan
from vgpuscope.services.hosted import Hosted

_ADDRESS = {"analyzer.listen": everywhere(ANALYZER_PORT)}  # only the server knows the true one


def _prepare() -> Plan:
    file = config.settings_file(None, os.environ, sections=config.Config.__struct_fields__)
    # In a pod, a loopback connection can come from a sidecar that passes on requests of anyone.
    alone = "KUBERNETES_SERVICE_HOST" not in os.environ
    return analyzer.plan(flags=_ADDRESS, environ=os.environ, file=file, hosted=alone)


app = Hosted(_prepare)
