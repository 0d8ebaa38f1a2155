"""The settings file of the demo's analyzer: a policy so quick that a case goes through its states in two minutes."""

import importlib.util
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

Hand: TypeAlias = Literal["control", "scale"]  # who takes GPUs back: the control service, or the analyzer itself
HANDS: tuple[Hand, ...] = get_args(Hand)
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
  dry_run: {dry_run} # false: `reclaim.action` decides what is done
  api_url: {control}
  secret: {secret}
analyzer:
  kubeconfig: {kubeconfig}
kube:
  enabled: true # without it nothing but metrics shows which pod holds a GPU, and nothing is taken
reclaim:
  action: {action} # control: the demo's control service deletes the pod. scale: its owner is scaled, or it is evicted
  confirmations: 2 # windows in a row; a window of the demo is one minute
  grace: 30s
  min_pod_age: 30s
  include_held: true # the idle pods of the demo hold memory; by default, their cases are held by this setting
  protected_namespaces: [kube-system, serving] # so that one case shows what protects it
  max_per_hour: 20 # so that no case of the demo waits for an hour
  max_per_namespace: 20
  max_fleet_share: 1.0
"""
_NOTICES = """\
notify:
  channels:
    - name: demo # the demo prints what this channel gets, and GET shows it in full
      url: {notices}
      operators: true
"""
_MODEL = """\
ai:
  enabled: true
  provider: compatible
  api_url: {model}
  api_key: demo
  model: stand-in
"""


class Places(NamedTuple):
    """URLs of what the demo runs for its analyzer."""

    control: str
    model: str
    notices: str


def write(root: Path, places: Places, *, secret: str, live: Hand | None) -> Path:
    """Writes the file, readable only by its owner; returns its path."""
    file = root / SETTINGS_FILE
    file.touch(mode=0o600)
    text = _TEXT.format(
        dry_run=str(live is None).lower(),
        action=live or "control",
        control=places.control,
        secret=secret,
        kubeconfig=root / "kubeconfig",
    )
    if _installed("apprise"):
        text += _NOTICES.format(notices=places.notices)
    if _installed("openai"):
        text += _MODEL.format(model=places.model)
    file.write_text(text)
    return file


def _installed(package: str) -> bool:
    """Whether the package of an extra is there."""
    return importlib.util.find_spec(package) is not None
