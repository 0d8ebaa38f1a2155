"""The tree at the top of model/errors.py is that of its types."""

import re

from vgpuscope.model import errors


def test_the_tree_names_every_error_once_and_no_other():
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert sorted(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", tree)) == sorted(kinds)
