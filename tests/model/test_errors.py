"""The table of errors."""

from vgpuscope.model.errors import KubeUnwritten, error_of, error_types


def test_a_kind_of_an_error_without_a_code_of_its_own_is_no_further_error():
    before = error_types()

    class Kind(KubeUnwritten):
        """As a module that tells two causes apart may have."""

    assert issubclass(Kind, KubeUnwritten)
    assert error_types() == before
    assert error_of(KubeUnwritten.code) is KubeUnwritten
    assert len({kind.code for kind in before}) == len(before)
