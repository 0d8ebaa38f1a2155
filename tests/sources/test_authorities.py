"""Clients trust what the machine trusts, or what SSL_CERT_FILE names, and VGPUSCOPE_CA_FILE; it is read once."""

import httpx2
import pytest
import trustme

from vgpuscope.sources.authorities import authorities


def test_all_clients_share_what_was_read(tmp_path, monkeypatch):
    own, reads, usual = tmp_path / "ca.pem", [], httpx2.create_ssl_context
    trustme.CA().cert_pem.write_to_path(own)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda: reads.append("read") or usual())
    assert authorities() is authorities()
    assert reads == ["read"]


def test_another_file_is_read_and_one_that_is_missing_is_an_error_each_time(tmp_path, monkeypatch):
    own, missing = tmp_path / "ca.pem", tmp_path / "missing.pem"
    trustme.CA().cert_pem.write_to_path(own)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    assert authorities().cert_store_stats()["x509_ca"] == 1
    monkeypatch.setenv("SSL_CERT_FILE", str(missing))
    for _ in range(2):
        with pytest.raises(OSError):
            authorities()
    missing.write_bytes(own.read_bytes())
    assert authorities().cert_store_stats()["x509_ca"] == 1


def test_further_authorities_are_trusted_besides_the_others(tmp_path, monkeypatch):
    usual, more = tmp_path / "usual.pem", tmp_path / "more.pem"
    for file in (usual, more):
        trustme.CA().cert_pem.write_to_path(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(usual))
    monkeypatch.setenv("VGPUSCOPE_CA_FILE", str(more))
    assert authorities().cert_store_stats()["x509_ca"] == 2
    more.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(more))
    with pytest.raises(OSError):
        authorities()
