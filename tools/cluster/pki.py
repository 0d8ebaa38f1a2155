"""Certificates and kubeconfigs of the cluster, as kubeadm would make them."""

import ipaddress
import json
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tools.cluster import layout

_LONG = timedelta(days=30)
_PRIVATE = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.TraditionalOpenSSL,
    serialization.NoEncryption(),
)
API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
# file: common name, organisation
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "proxy": ("system:kube-proxy", None),
    "front-proxy": ("front-proxy-client", None),
}


def write() -> None:
    """All certificates, the key of service accounts, and a kubeconfig for each client of the API server."""
    layout.PKI.mkdir(parents=True)
    layout.PKI.chmod(0o700)
    authority = ec.generate_private_key(ec.SECP256R1())
    root = _certificate("vgpuscope-cluster", None, authority, signer=authority)
    _store("ca", authority, root)
    addresses = (str(layout.API_IP), str(layout.NODE_IP), "127.0.0.1")
    issued = {
        "apiserver": ("kube-apiserver", None, (*API_NAMES, "localhost", *addresses)),
        "kubelet": (f"system:node:{layout.NODE}", "system:nodes", (layout.NODE, *addresses[1:])),
        **{file: (*names, ()) for file, names in CLIENTS.items()},
    }
    for file, (name, organisation, alternatives) in issued.items():
        key = ec.generate_private_key(ec.SECP256R1())
        issued_one = _certificate(name, organisation, key, signer=authority, issuer=root, alternatives=alternatives)
        _store(file, key, issued_one)
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (layout.PKI / "sa.key").write_bytes(accounts.private_bytes(*_PRIVATE))
    public = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (layout.PKI / "sa.pub").write_bytes(accounts.public_key().public_bytes(*public))
    for file in ("admin", "kubelet", "controller-manager", "scheduler", "proxy"):
        _kubeconfig(file)


def issue(file: str, names: tuple[str, ...]) -> None:
    """One more certificate of the cluster's authority, for a server with these names; it replaces an earlier one."""
    root = x509.load_pem_x509_certificate((layout.PKI / "ca.crt").read_bytes())
    authority = serialization.load_pem_private_key((layout.PKI / "ca.key").read_bytes(), password=None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    _store(file, key, _certificate(names[0], None, key, signer=authority, issuer=root, alternatives=names))


def _certificate(
    name: str,
    organisation: str | None,
    key: ec.EllipticCurvePrivateKey,
    *,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None = None,
    alternatives: tuple[str, ...] = (),
) -> x509.Certificate:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organisation:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    subject, now = x509.Name(parts), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LONG)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if alternatives:
        names = x509.SubjectAlternativeName([_alternative(text) for text in alternatives])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _store(file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    (layout.PKI / f"{file}.key").write_bytes(key.private_bytes(*_PRIVATE))
    (layout.PKI / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _kubeconfig(file: str) -> None:
    at = layout.PKI
    user = {"client-certificate": str(at / f"{file}.crt"), "client-key": str(at / f"{file}.key")}
    cluster = {"server": layout.API, "certificate-authority": str(at / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "vgpuscope", "cluster": cluster}],
        "users": [{"name": file, "user": user}],
        "contexts": [{"name": "vgpuscope", "context": {"cluster": "vgpuscope", "user": file}}],
        "current-context": "vgpuscope",
    }
    (at / f"{file}.kubeconfig").write_text(json.dumps(config))
