"""Signed links: what they say comes back, and nothing else does."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.notices import links
from vgpuscope.model.errors import LinkExpired, LinkInvalid
from vgpuscope.model.notices import SignedLink

pytestmark = pytest.mark.attack
KEY, OTHER = b"k" * 32, b"o" * 32
NOW = 1_800_000_000.0
LINK = SignedLink(case_id="8c1e-uid", action="keep", expires=int(NOW) + 60, nonce="abcd1234", language="zh")

all_links = st.builds(
    SignedLink,
    case_id=st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable()),
    action=st.sampled_from(["keep", "snooze", "release"]),
    expires=st.integers(int(NOW) + 1, 2**40),
    nonce=st.from_regex(r"[A-Za-z0-9_-]{8,20}", fullmatch=True),
    language=st.sampled_from(["en", "zh"]),
)


@given(all_links)
def test_a_link_says_what_it_was_signed_for(link):
    token = links.signed(link, KEY)
    assert links.read(token, KEY, now=NOW) == link
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_link_ends_to_the_second():
    token = links.signed(LINK, KEY)
    assert links.read(token, KEY, now=LINK.expires - 0.001) == LINK
    with pytest.raises(LinkExpired):
        links.read(token, KEY, now=LINK.expires)


@given(st.data())
def test_no_changed_character_is_accepted(data):
    token = links.signed(LINK, KEY)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_+/=").filter(lambda one: one != token[place]))
    with pytest.raises(LinkInvalid):
        links.read(token[:place] + other + token[place + 1 :], KEY, now=NOW)


@given(
    st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
)
def test_what_nobody_signed_is_refused(token):
    with pytest.raises(LinkInvalid):
        links.read(token, KEY, now=NOW)


def test_another_secret_another_action_another_case_and_a_later_end_need_another_signature():
    token = links.signed(LINK, KEY)
    content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    said, mac = content[:-16], content[-16:]
    with pytest.raises(LinkInvalid):
        links.read(token, OTHER, now=NOW)
    for change in (
        lambda text: b"r" + text[1:],
        lambda text: text.replace(b"8c1e-uid", b"9c1e-uid"),
        lambda text: text[:2] + b"f" + text[2:],
        lambda text: text.replace(b"abcd1234", b"abcd1235"),
    ):
        assert change(said) != said
        forged = base64.urlsafe_b64encode(change(said) + mac).decode().rstrip("=")
        with pytest.raises(LinkInvalid):
            links.read(forged, KEY, now=NOW)


def test_padding_does_not_make_a_second_link_of_one():
    token = links.signed(LINK, KEY)
    for other in (token + "=", token + "\n", " " + token, token + "A"):
        with pytest.raises(LinkInvalid):
            links.read(other, KEY, now=NOW)
