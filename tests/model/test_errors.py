"""The table of errors, and the tree of them at the top of model/errors.py."""

import re

from vgpuscope.model import errors
from vgpuscope.model.errors import KubeUnwritten, error_of, error_types


def test_the_tree_names_every_error_once_and_no_other():
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    kinds = {name for name, kind in classes.items() if kind.__module__ == errors.__name__}
    assert sorted(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", tree)) == sorted(kinds)


def test_a_kind_of_an_error_without_a_code_of_its_own_is_no_further_error():
    before = error_types()

    class Kind(KubeUnwritten):
        """As a module that tells two causes apart may have."""

    assert issubclass(Kind, KubeUnwritten)
    assert error_types() == before
    assert error_of(KubeUnwritten.code) is KubeUnwritten
    assert len({kind.code for kind in before}) == len(before)
