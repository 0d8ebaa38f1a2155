"""`vgpuscope notify`: the channels of the settings, and a trial message through one of them."""

import json

import pytest

from tests.sinks import chat
from vgpuscope import cli


@pytest.fixture
def settings(tmp_path):
    with chat.Standin(chat.feishu("a-bots-secret")) as bot:
        channel = {"name": "ml", "url": f"{bot.url}/hook/abcdefgh", "service": "feishu", "secret": "a-bots-secret"}
        file = tmp_path / "s.yaml"
        file.write_text(f"notify:\n  channels: [{json.dumps(channel)}]\n")
        yield bot, file


def test_a_trial_message_arrives(settings, capsys):
    bot, file = settings
    assert cli.main(["notify", "--config", str(file), "ml"]) == 0
    assert capsys.readouterr().out == "ml: the message was taken\n"
    assert "该通知渠道可用" in bot.taken[0].body["content"]["text"]


def test_a_message_that_is_refused_is_an_error_with_its_reason_and_without_the_address(settings, capsys):
    bot, file = settings
    bot.judge = chat.feishu("another-secret")
    assert cli.main(["notify", "--config", str(file), "ml"]) == 1
    said = capsys.readouterr().err
    assert "CALL_FAILED" in said
    assert "19021" in said
    assert "abcdefgh" not in said


def test_the_channels_are_listed(settings, capsys):
    _, file = settings
    assert cli.main(["notify", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "CHANNEL  SERVICE  LANGUAGE\nml       feishu   zh\n"
    assert cli.main(["notify", "--config", str(file), "nobody"]) == 1
    assert "ml" in capsys.readouterr().err


def test_without_channels_it_is_said(capsys):
    assert cli.main(["notify", "--config", "none"]) == 0
    assert "notify.channels is empty" in capsys.readouterr().out
