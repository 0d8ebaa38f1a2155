"""The keys that seal assignments: a file, most often of a Secret that extender, device plugin and exporter mount."""

from vgpuscope.formats.hami.seal import Seals, read_seal_keys
from vgpuscope.model.errors import ConfigInvalid


def seals(path: str) -> Seals | None:
    """What makes and checks seals; None if there is no file of keys: then assignments are not sealed. ConfigInvalid."""
    if path == "none":
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return read_seal_keys(file.read())
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid(f"seal keys: {path}: {getattr(e, 'strerror', None) or 'not text'}") from e
