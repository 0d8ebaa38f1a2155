"""What OpenAPI documents say of fields that are figures."""

from typing import Any


def field_notes(struct: str, field: str) -> dict[str, Any]:
    """The definition of a field; the table is read with the first document, because it costs memory."""
    from vgpuscope.views import definitions

    return definitions.field_notes(struct, field)
