"""The settings file of the demo's analyzer: a policy so quick that a case goes through its states in two minutes."""

import importlib.util
from pathlib import Path

from vgpuscope.config import SETTINGS

SETTINGS_FILE = "settings.yaml"  # in the demo's directory; the analyzer reads it again when it changes

DIFFERS = (
    "the demo's times and budgets are short: see settings.yaml",
    "include_held is true: idle pods here hold memory",
)
_TEXT = """\
# Taking GPUs back in the demo. The analyzer reads this file again when it changes.
# Every setting under `reclaim` differs from its default; `vgpuscope reclaim` lists them with their defaults.
control:
  enabled: true
  dry_run: {dry_run} # false: the demo's control service is called, and it deletes the pod
  api_url: {control}
  secret: {secret}
reclaim:
  confirmations: 2 # windows in a row; a window of the demo is one minute
  grace: 30s
  min_pod_age: 30s
  include_held: true # the idle pods of the demo hold memory; by default, their cases are held by this setting
  protected_namespaces: [kube-system, serving] # so that one case shows what protects it
  max_per_hour: 20 # so that no case of the demo waits for an hour
  max_per_namespace: 20
  max_fleet_share: 1.0
"""
_MODEL = """\
ai:
  enabled: true
  provider: compatible
  api_url: {model}
  api_key: demo
  model: stand-in
"""


def write(root: Path, *, control: str, secret: str, model: str, live: bool) -> Path:
    """Writes the file, readable only by its owner; returns its path."""
    file = root / SETTINGS_FILE
    file.touch(mode=0o600)
    text = _TEXT.format(dry_run=str(not live).lower(), control=control, secret=secret)
    file.write_text(text + (_MODEL.format(model=model) if _asks_models() else ""))
    return file


def _asks_models() -> bool:
    """Whether this release asks language models, and the SDK that it needs is installed."""
    known = {setting.path for setting in SETTINGS}
    return "ai.provider" in known and importlib.util.find_spec("openai") is not None
