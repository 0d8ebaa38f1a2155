from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube.quantity import whole_number

SUFFIXES = {
    "": 1,
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
    "e3": 1000,
    "E-2": Fraction(1, 100),
}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (3, 3),
        ("3", 3),
        ("8k", 8000),
        ("81920", 81920),
        ("1Ki", 1024),
        ("1.5Ki", 1536),
        ("2e3", 2000),
        ("2000m", 2),
        ("1.0", 1),
        (".5k", 500),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
    ],
)
def test_a_quantity_is_the_number_it_means(written, meant):
    assert whole_number(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "k",
        ".",
        "1500m",
        "1.5",
        "ten",
        "1 k",
        "1kk",
        "1e",
        "٣",
        "8K",
        "9" * 19,
        "1Ei9",
        "9Ei",
        2**63,
        1.5,
        True,
        None,
        [],
        {},
        "9" * 1000000,
        "1e99",
    ],
    ids=lambda written: str(written)[:10],
)
def test_a_fraction_or_something_else_is_no_whole_number(written):
    assert whole_number(written) is None


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6 - 1), st.sampled_from(sorted(SUFFIXES)))
def test_every_suffix_multiplies_exactly(whole, millionths, suffix):
    sign = -1 if whole < 0 else 1
    exact = (whole + sign * Fraction(millionths, 10**6)) * SUFFIXES[suffix]
    fits = exact.denominator == 1 and abs(exact) < 2**63
    assert whole_number(f"{whole}.{millionths:06}{suffix}") == (exact if fits else None)


@given(st.text(max_size=50))
def test_any_text_is_a_number_or_none(text):
    assert isinstance(whole_number(text), int | None)
