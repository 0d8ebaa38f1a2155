"""The web configuration file: what it may say, and what is refused with which words."""

import hashlib
import ssl

import bcrypt
import pytest
import trustme

from vgpuscope.http import webconfig
from vgpuscope.http.webconfig import KnownUser
from vgpuscope.model.caller import Caller
from vgpuscope.model.errors import WebConfigInvalid

HASH = bcrypt.hashpw(b"secret", b"$2b$04$abcdefghijklmnopqrstuu").decode()  # fixed: it is part of the tests' names
DIGEST = hashlib.sha256(b"token").hexdigest()
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def folder(tmp_path, authority):
    """A folder with a certificate, its key and an authority."""
    cert = authority.issue_cert("localhost")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "token").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "empty").write_text("")
    return tmp_path


def read(folder, text):
    path = folder / "web.yaml"
    path.write_text(text)
    return webconfig.read(str(path), webconfig.WebConfigFiles(str(path)))


def tls(*lines):
    return "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n" + "".join(f"  {line}\n" for line in lines)


def test_plain_http_for_all_is_asked_for(folder):
    web = read(folder, "unguarded: true")
    assert web.tls is None
    assert not web.guarded


def test_files_are_found_beside_the_configuration(folder, monkeypatch):
    monkeypatch.chdir("/")
    assert isinstance(read(folder, tls()).tls, ssl.SSLContext)


def test_certificate_and_key_may_stand_in_the_file(folder):
    def inline(name):
        lines = (folder / name).read_text().splitlines()
        return "|\n" + "".join(f"    {line}\n" for line in lines)

    text = f"tls_server_config:\n  cert: {inline('cert.pem')}  key: {inline('key.pem')}"
    assert read(folder, text).tls is not None


def test_tls_is_modern_by_default(folder):
    context = read(folder, tls()).tls
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        (["min_version: TLS13"], lambda c: c.minimum_version == ssl.TLSVersion.TLSv1_3),
        (["max_version: TLS12"], lambda c: c.maximum_version == ssl.TLSVersion.TLSv1_2),
        (
            ["client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.pem"],
            lambda c: c.verify_mode == ssl.CERT_REQUIRED,
        ),
        (
            ["client_auth_type: VerifyClientCertIfGiven", "client_ca_file: ca.pem"],
            lambda c: c.verify_mode == ssl.CERT_OPTIONAL,
        ),
        (
            ["cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"],
            lambda c: (
                [x["name"] for x in c.get_ciphers() if x["protocol"] == "TLSv1.2"] == ["ECDHE-RSA-AES256-GCM-SHA384"]
            ),
        ),
        (["cipher_suites: [TLS_AES_128_GCM_SHA256]"], lambda c: c.minimum_version == ssl.TLSVersion.TLSv1_3),
        (["prefer_server_cipher_suites: false"], lambda c: not c.options & ssl.OP_CIPHER_SERVER_PREFERENCE),
        (["curve_preferences: [CurveP256]"], lambda c: True),
    ],
)
def test_tls_settings_take_effect(folder, lines, check):
    assert check(read(folder, tls(*lines)).tls)


def test_every_suite_we_name_is_one_that_openssl_knows():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in webconfig._SUITES.values():
        context.set_ciphers(name + ":@SECLEVEL=0")


def test_headers_users_and_tokens_are_taken(folder):
    web = read(
        folder,
        f"""
http_server_config:
  headers: {{X-Frame-Options: deny, Strict-Transport-Security: max-age=60, Content-Security-Policy: ''}}
basic_auth_users: {{prometheus: '{HASH}'}}
bearer_tokens:
  - {{name: a, sha256: {DIGEST}}}
  - {{name: b, file: token}}
rate_limit: {{interval: 1s, burst: 20}}
""",
    )
    assert web.headers == ((b"x-frame-options", b"deny"), (b"strict-transport-security", b"max-age=60"))
    assert web.users == {"prometheus": KnownUser(hash=HASH.encode(), caller=Caller(name="prometheus", role="read"))}
    assert [one.caller for one in web.tokens] == [Caller(name="a", role="read"), Caller(name="b", role="read")]
    assert web.tokens[1].digest == hashlib.sha256(b"0123456789abcdef0123456789abcdef").digest()
    assert (web.interval, web.burst) == (1.0, 20)


def test_users_and_tokens_have_a_role_and_namespaces(folder):
    web = read(
        folder,
        f"""
basic_auth_users:
  ann: {{hash: '{HASH}', role: operate, namespaces: [vision, ml, ml]}}
bearer_tokens:
  - {{name: ci, sha256: {DIGEST}, role: admin}}
  - {{name: ml, file: token, namespaces: [ml]}}
""",
    )
    assert web.callers == (
        Caller(name="ann", role="operate", namespaces=("ml", "vision")),
        Caller(name="ci", role="admin", namespaces=None),
        Caller(name="ml", role="read", namespaces=("ml",)),
    )


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("tls_config: {}", "web.yaml", "unknown field `tls_config`"),
        (tls("min_versoin: TLS12"), "tls_server_config", "unknown field `min_versoin`"),
        (tls("min_version: TLS10"), "tls_server_config.min_version", "'TLS10' is not supported"),
        (tls("min_version: TLS13", "max_version: TLS12"), "tls_server_config.min_version", "above max_version"),
        (tls("cipher_suites: [RC4]"), "tls_server_config.cipher_suites", "'RC4' is not a suite"),
        (tls("curve_preferences: [X25519, CurveP256]"), "tls_server_config.curve_preferences", "only one curve"),
        (tls("curve_preferences: [P-1]"), "tls_server_config.curve_preferences", "'P-1' is not one of"),
        (tls("client_auth_type: RequireAnyClientCert"), "client_auth_type", "accepts unverified certificates"),
        (tls("client_auth_type: Please"), "client_auth_type", "'Please' is not one of"),
        (tls("client_auth_type: RequireAndVerifyClientCert"), "client_auth_type", "client_ca_file is missing"),
        (tls("client_ca_file: ca.pem"), "client_auth_type", "has no effect"),
        (tls("client_allowed_sans: [a]"), "client_allowed_sans", "needs client_auth_type"),
        (
            tls("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: key.pem"),
            "client_ca_file",
            "not a certificate",
        ),
        ("tls_server_config: {cert_file: cert.pem}", "tls_server_config.key_file", "missing"),
        ("tls_server_config: {}", "tls_server_config.cert_file", "missing"),
        (tls("cert: x"), "tls_server_config.cert_file", "inline as well"),
        ("tls_server_config: {cert_file: no.pem, key_file: key.pem}", "no.pem", "No such file"),
        ("tls_server_config: {cert_file: empty, key_file: key.pem}", "tls_server_config", "cannot be used together"),
        ("tls_server_config: {cert_file: ca.pem, key_file: key.pem}", "tls_server_config", "key values mismatch"),
        ("http_server_config: {http2: true}", "http_server_config.http2", "HTTP/2 is not supported"),
        ("http_server_config: {headers: {Server: x}}", "headers.Server", "cannot be set"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "headers.X-Frame-Options", "deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb: c"}}', "X-XSS-Protection", "cannot carry"),
        ("basic_auth_users: {me: secret}", "basic_auth_users.me", "not a bcrypt hash"),
        ("basic_auth_users: {me: 1}", "basic_auth_users", "Expected `str | object`"),
        ("basic_auth_users: {me: {role: admin}}", "basic_auth_users", "missing required field `hash`"),
        (f"basic_auth_users: {{me: {{hash: '{HASH}', role: root}}}}", "basic_auth_users", "Invalid enum value 'root'"),
        (f"basic_auth_users: {{me: {{hash: '{HASH}', roles: [read]}}}}", "basic_auth_users", "unknown field `roles`"),
        (f"basic_auth_users: {{me: {{hash: '{HASH}', namespaces: []}}}}", "me.namespaces", "names no namespace"),
        (f"basic_auth_users: {{me: {{hash: '{HASH}', namespaces: }}}}", "basic_auth_users", "Expected `array`"),
        (f"basic_auth_users: {{me: '{HASH.replace('$04$', '$31$')}'}}", "basic_auth_users.me", "cost 31"),
        (f"basic_auth_users: {{'a:b': '{HASH}'}}", "basic_auth_users", "'a:b' cannot be the name"),
        ("bearer_tokens: [{name: a}]", "bearer_tokens[0]", "either sha256 or file"),
        (f"bearer_tokens: [{{name: a, sha256: {DIGEST}, file: token}}]", "bearer_tokens[0]", "either sha256 or file"),
        ("bearer_tokens: [{name: a, sha256: abc}]", "bearer_tokens[0].sha256", "64 hexadecimal"),
        ("bearer_tokens: [{name: a, file: short}]", "bearer_tokens[0].file", "fewer than 16"),
        ("bearer_tokens: [{name: a, file: missing}]", "missing", "No such file"),
        (f"bearer_tokens: [{{name: a, sha256: {EMPTY}}}]", "bearer_tokens[0].sha256", "an empty token"),
        (f"bearer_tokens: [{{name: a, sha256: {DIGEST}, role: }}]", "bearer_tokens", "Expected `str`"),
        (f"bearer_tokens: [{{name: a, sha256: {DIGEST}, namespaces: [A]}}]", "[0].namespaces", "'A' is not the name"),
        (f"bearer_tokens: [{{name: a, sha256: {DIGEST}, namespaces: ml}}]", "bearer_tokens", "Expected `array`"),
        (
            f"bearer_tokens: [{{name: a, sha256: {DIGEST}}}, {{name: b, sha256: {DIGEST}, role: admin}}]",
            "bearer_tokens[1]",
            "the same token as 'a'",
        ),
        ("", "web.yaml", "neither users, tokens nor TLS"),
        ("unguarded: false", "web.yaml", "neither users, tokens nor TLS"),
        ("rate_limit: {interval: 1s, burst: 3}", "web.yaml", "neither users, tokens nor TLS"),
        (f"bearer_tokens: [{{sha256: {DIGEST}}}]", "bearer_tokens", "missing required field `name`"),
        ("rate_limit: {interval: often}", "rate_limit.interval", "expected seconds"),
        ("rate_limit: {interval: -1}", "rate_limit.interval", "not from 0"),
        ("rate_limit: {interval: 1}", "rate_limit.burst", "at least 1"),
        ("basic_auth_users: [", "web.yaml:2", "did not find"),
        ("[]", "web.yaml", "expected keys and values"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_key_and_reason(folder, text, key, reason):
    with pytest.raises(WebConfigInvalid) as caught:
        read(folder, text)
    assert key in str(caught.value)
    assert reason.lower() in str(caught.value).lower()
    assert caught.value.exit_code == 2


def test_no_refusal_repeats_a_password(folder):
    with pytest.raises(WebConfigInvalid) as caught:
        read(folder, "basic_auth_users: {me: hunter2}")
    assert "hunter2" not in str(caught.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(folder):
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    locked = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"x"))
    (folder / "key.pem").write_bytes(locked)
    with pytest.raises(WebConfigInvalid, match="the key is encrypted"):
        read(folder, tls())


@pytest.mark.parametrize(
    ("san", "allowed"),
    [
        (("DNS", "prometheus"), True),
        (("DNS", "other"), False),
        (("IP Address", "0:0:0:0:0:0:0:1"), True),
        (("email", "a@b"), False),
        (("URI", "spiffe://x/prom"), True),
    ],
)
def test_a_client_is_known_by_any_of_its_names(san, allowed):
    names = frozenset({"prometheus", "::1", "spiffe://x/prom"})
    assert webconfig.client_allowed({"subjectAltName": (san,)}, names) is allowed
    assert not webconfig.client_allowed(None, names)


def test_the_faults_of_all_sections_are_told_at_once(folder):
    text = "basic_auth_users: {me: plain}\nbearer_tokens: [{name: a, file: short}]\n" + tls('min_version: "SSL30"')
    with pytest.raises(WebConfigInvalid) as caught:
        read(folder, text)
    told = [line for line in caught.value.lines.splitlines() if line.startswith("vgpuscope: ")]
    assert [line.partition(": WEB_CONFIG_INVALID: ")[2].partition(":")[0] for line in told] == [
        "basic_auth_users.me",
        "bearer_tokens[0].file",
        "tls_server_config.min_version",
    ]
