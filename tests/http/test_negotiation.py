"""Which format and which encoding a client gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.http.negotiation import wants_gzip, wants_openmetrics

PROMETHEUS_2 = (
    b"application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    b"text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    b"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    b"application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    b"text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF_FIRST = (
    b"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    b"text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
BROWSER = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (b"", False),
        (b"*/*", False),
        (BROWSER, False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        (PROTOBUF_FIRST, False),
        (b"application/openmetrics-text", True),
        (b"application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        (b'application/openmetrics-text; version="1.0.0"', True),
        (b"APPLICATION/OpenMetrics-Text", True),
        (b"application/openmetrics-text;version=0.0.1", False),
        (b"application/openmetrics-text;version=2.0.0,text/plain;q=0.1", False),
        (b"application/openmetrics-text;q=0", False),
        (b"application/openmetrics-text;q=0.4,text/plain;q=0.5", False),
        (b"application/openmetrics-text;q=0.5,text/plain;q=0.4", True),
        (b"text/plain,application/openmetrics-text", False),
        (b"application/openmetrics-text,text/plain", True),
        (b"application/openmetrics-text,*/*", True),
        (b"*/*,application/openmetrics-text", False),
        (b"text/plain;q=0,application/openmetrics-text;q=0.1,*/*", True),
        (b"text/*;q=0.9,application/openmetrics-text;q=0.8", False),
        (b"image/png", False),
        (b"application/openmetrics-text;q=much", False),
        (b"application/openmetrics-text;q=7", False),
    ],
)
def test_the_format_follows_the_clients_liking(accept, openmetrics):
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("header", "gzip"),
    [
        (b"", False),
        (b"gzip", True),
        (b"GZIP", True),
        (b"x-gzip", True),
        (b"deflate, gzip;q=0.5", True),
        (b"gzip;q=0", False),
        (b"gzip;q=0, *", False),
        (b"*", True),
        (b"*;q=0", False),
        (b"identity", False),
        (b"identity;q=1, gzip;q=0.5", False),
        (b"identity;q=0.5, gzip;q=1.0", True),
        (b"br", False),
        (b"gzipped", False),
    ],
)
def test_compression_only_when_asked_for(header, gzip):
    assert wants_gzip(header) is gzip


@given(st.binary())
def test_any_header_gets_an_answer(header):
    assert wants_openmetrics(header) in {True, False}
    assert wants_gzip(header) in {True, False}


def test_headers_of_strangers_do_not_fill_the_memory():
    for i in range(1000):
        wants_openmetrics(b"x/%d" % i)
    assert wants_openmetrics.cache_info().currsize <= 64
