"""No secret survives redaction, in whatever form it is written."""

import pytest

from vgpuscope.runtime.redaction import MASK, redacted, secrets_of


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("http://admin:hunter2secret@prometheus:9090/x", "hunter2secret"),
        ("postgresql://user:p%40ss-word@db/x", "p%40ss-word"),
        ("Authorization: Bearer abc.def-123456", "abc.def-123456"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ('{"api_key": "sk-proj-abcdefghijklmnop"}', "sk-proj-abcdefghijklmnop"),
        ("AI_API_KEY=verysecretvalue", "verysecretvalue"),
        ('{"password": "with spaces in it"}', "with spaces in it"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, secret: str):
    found = redacted(text)
    assert secret not in found
    assert MASK in found


def test_values_of_variables_that_are_named_like_secrets_are_masked_everywhere():
    environ = {"VGPUSCOPE_TOKEN": "tok3n-value", "DB_PASSWORD": "a&b c/d", "HOME": "/root"}
    secrets = secrets_of(environ, ["other-secret", None, "abc"])
    text = "tok3n-value a&b c/d a%26b%20c%2Fd other-secret /root abc"
    found = redacted(text, secrets)
    assert "/root" in found
    assert "abc" in found  # too short to be a secret that can be searched for
    for secret in ("tok3n-value", "a&b c/d", "a%26b%20c%2Fd", "other-secret"):
        assert secret not in found


def test_ordinary_pages_are_not_changed():
    page = (
        'vgpuscope_gpu_utilization_ratio{node="a",gpu_uuid="GPU-1"} 0.5\nvgpuscope_errors_total{code="SOURCE_DOWN"} 1\n'
    )
    assert redacted(page) == page
