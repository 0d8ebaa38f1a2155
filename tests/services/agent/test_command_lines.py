"""Command lines: hidden unless the agent listens on a loopback address or is told to show them, and never a secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.config import AgentConfig
from vgpuscope.services.agent.command_lines import reader, shown


@pytest.mark.parametrize(
    ("listen", "chosen", "visible"),
    [
        ("0.0.0.0:9394", "auto", False),
        ("[::]:9394", "auto", False),
        (":9394", "auto", False),
        ("10.0.0.7:9394", "auto", False),
        ("node-1:9394", "auto", False),
        ("127.0.0.1:9394", "auto", True),
        ("[::1]:9394", "auto", True),
        ("localhost:9394", "auto", True),
        ("127.0.0.1:9394", "hide", False),
        ("0.0.0.0:9394", "show", True),
    ],
)
def test_outside_of_loopback_command_lines_are_hidden_by_default(listen, chosen, visible):
    assert (reader(AgentConfig(listen=listen, command_lines=chosen)) is not None) == visible


def test_by_default_command_lines_are_hidden():
    assert reader(AgentConfig()) is None


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--password", SECRET),
        ("train.py", f"--password={SECRET}"),
        ("train.py", "--api-key", SECRET),
        ("train.py", f"--api-key={SECRET}"),
        ("train.py", "--wandb_api_key", SECRET),
        ("train.py", "-token", SECRET),
        ("train.py", "--hf-token", SECRET),
        ("env", f"AWS_SECRET_ACCESS_KEY={SECRET}", "train.py"),
        ("curl", "-H", f"Authorization: Bearer {SECRET}"),
        ("psql", f"postgresql://user:{SECRET}@db/x"),
        ("sh", "-c", f"export HF_TOKEN={SECRET}; python train.py"),
    ],
)
def test_a_secret_is_masked(words):
    text = shown("\0".join(words).encode() + b"\0")
    assert SECRET not in text
    assert "[redacted]" in text
    assert text.startswith(words[0])


def test_what_is_no_secret_stays():
    assert shown(b"python3\0train.py\0--tokens-per-batch\x004096\0--data\0/x\0") == (
        "python3 train.py --tokens-per-batch 4096 --data /x"
    )


@given(st.binary(max_size=3000))
def test_any_bytes_are_one_short_line(arguments):
    text = shown(arguments)
    assert text.isprintable()
    assert len(text) <= 512
