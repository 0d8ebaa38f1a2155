"""Messages through the real apprise, to stand-ins that judge them as each service documents it."""

import asyncio
import logging
import ssl

import pytest
import trustme
from apprise.plugins.slack import NotifySlack

from tests.http.serving import until
from tests.loopclock import forward
from tests.sinks import chat
from vgpuscope.model.errors import CallFailed
from vgpuscope.sinks.notices import AddressInvalid, Sender, dingtalk_signature, feishu_signature, target

TEXT = "⚠️ **GPU 低利用率告警**\n\n- **ml/train-0**\n - 评分: 2.5%\n - 保留: https://gpu.example.com/owner/abc_-123\n"


async def send(url: str, *, secret: str = "", service: str = "auto", title: str = "a title", body: str = TEXT) -> None:
    sender = Sender(target(url, secret=secret, service=service, timeout=5.0), timeout=5.0)
    try:
        await sender.send(title, body)
    finally:
        sender.close()


# ── Feishu, Lark, DingTalk, WeCom ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("service", ["feishu", "lark"])
@pytest.mark.parametrize("secret", ["", "a-bots-secret"])
async def test_feishu_and_lark_take_the_text_as_it_is_with_the_bots_signature(service, secret):
    with chat.Standin(chat.feishu(secret)) as bot:
        await send(f"{bot.url}/open-apis/bot/v2/hook/x", service=service, secret=secret)
        [one] = bot.taken
        assert one.body["content"]["text"].strip() == TEXT.strip()
        assert one.headers["content-type"].startswith("application/json")


async def test_a_message_is_signed_for_the_moment_at_which_it_is_sent():
    with chat.Standin(lambda _: (200, {"code": 0})) as bot:
        where = target(bot.url, secret="s", service="feishu", timeout=5.0, wall=lambda: 1599360473.0)
        sender = Sender(where, timeout=5.0)
        await sender.send("", TEXT)
        sender.close()
    assert [one.body["timestamp"] for one in bot.taken] == ["1599360473"]


@pytest.mark.parametrize("given", ["", "another-secret"])
async def test_a_refusal_of_feishu_with_status_200_is_a_failure(given):
    with chat.Standin(chat.feishu("a-bots-secret")) as bot:
        with pytest.raises(CallFailed, match="19021"):
            await send(f"{bot.url}/open-apis/bot/v2/hook/x", service="feishu", secret=given)
        assert (len(bot.received), bot.taken) == (1, [])


async def test_dingtalk_takes_a_message_with_its_signature_and_a_wrong_one_is_a_failure():
    with chat.Standin(chat.dingtalk("SEC1")) as bot:
        for _ in range(5):  # a signature has + and / sometimes, and = always: each must be encoded once
            await send(f"{bot.url}/robot/send?access_token=tok", service="dingtalk", secret="SEC1")
        assert len(bot.taken) == 5
        with pytest.raises(CallFailed, match="310000"):
            await send(f"{bot.url}/robot/send?access_token=tok", service="dingtalk", secret="SEC2")


async def test_wecom_takes_a_message_and_a_wrong_key_is_a_failure():
    with chat.Standin(chat.wecom) as bot:
        await send(f"{bot.url}/cgi-bin/webhook/send?key=known-key", service="wecom")
        assert len(bot.taken) == 1
        with pytest.raises(CallFailed, match="93000"):
            await send(f"{bot.url}/cgi-bin/webhook/send?key=other-key", service="wecom")


@pytest.mark.parametrize("answer", [(200, b"<html>login</html>"), (200, []), (200, {}), (500, {"code": 0}), (200, b"")])
async def test_only_an_answer_with_the_code_0_is_success(answer):
    with chat.Standin(lambda _: answer) as bot, pytest.raises(CallFailed, match="feishu answered"):
        await send(bot.url + "/hook", service="feishu")


@pytest.mark.parametrize("service", ["feishu", "dingtalk", "webhook"])
async def test_a_redirect_is_not_followed(service):
    with chat.Standin(lambda _: (307, {"code": 0, "errcode": 0})) as bot:
        with pytest.raises(CallFailed):
            await send(bot.url + "/hook", service=service)
        assert [one.path for one in bot.received] == ["/hook"]


def test_the_signatures_are_those_of_the_documentation():
    # by openssl dgst -sha256 -mac HMAC: Feishu signs nothing with time and secret, DingTalk both with the secret
    sign = "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="
    assert feishu_signature("demo", 1599360473) == ({}, {"timestamp": "1599360473", "sign": sign})
    sign = "hXZTWifRGHclNuZSKxoXc//sh51SWfVfRIhcdeKs63I="
    assert dingtalk_signature("this is secret", 1599360473.0) == ({"timestamp": "1599360473000", "sign": sign}, {})


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://open.feishu.cn/open-apis/bot/v2/hook/0f0f-1", "feishu"),
        ("feishu://0f0f-1", "feishu"),
        ("https://open.larksuite.com/open-apis/bot/v2/hook/0f0f-1", "lark"),
        ("lark://0f0f-1", "lark"),
        ("https://oapi.dingtalk.com/robot/send?access_token=tok", "dingtalk"),
        ("dingtalk://SEC1@tok/", "dingtalk"),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=k", "wecom"),
        ("wecombot://k", "wecom"),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "Slack"),
        (
            "workflows://prod-1.westeurope.logic.azure.com/0f0f1e2d/SIGNATURE-1/",
            "Power Automate / Workflows (for MSTeams)",
        ),
        ("mailto://smtp.example.com:25/?from=gpu@example.com&to=ann@example.com", "E-Mail"),
        ("https://example.com/hook?team=ml", "JSON"),
    ],
)
def test_the_service_is_told_from_the_address(url, service):
    assert target(url, secret="", service="auto", timeout=1.0).service == service


@pytest.mark.parametrize(
    "url", ["nope://x", "https://", "feishu://", "mailto://", "not a url", "slack://T1", "file:///etc/passwd"]
)
def test_what_is_no_address_is_refused_without_repeating_it(url):
    with pytest.raises(AddressInvalid) as e:
        target(url, secret="", service="auto", timeout=1.0)
    assert url not in str(e.value)


# ── services that apprise knows ──────────────────────────────────────────────────────────────────────────────────


async def test_slack_takes_the_text_with_whole_links(monkeypatch):
    with chat.Standin(chat.slack) as service:
        monkeypatch.setattr(NotifySlack, "webhook_url", f"{service.url}/services")
        await send("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")
        [one] = service.taken
        assert "https://gpu.example.com/owner/abc_-123" in str(one.body)
        assert "ml/train-0" in str(one.body)
        with pytest.raises(CallFailed) as e:
            await send("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/WrongjkdnlazkcOXrIdevi7F")
        assert "WrongjkdnlazkcOXrIdevi7F" not in str(e.value)


@pytest.fixture
def tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
async def test_teams_takes_an_adaptive_card_and_202_is_success(tls):
    with chat.Standin(chat.teams, tls) as service:
        await send(f"workflows://127.0.0.1:{service.port}/0f0f1e2d/SIGNATURE-1/?verify=no")
        [one] = service.received
        assert "ml/train-0" in str(one.body)
        assert "https://gpu.example.com/owner/abc_-123" in str(one.body)
        with pytest.raises(CallFailed, match="401"):
            await send(f"workflows://127.0.0.1:{service.port}/0f0f1e2d/SIGNATURE-2/?verify=no")
        with pytest.raises(CallFailed):  # a certificate that nobody signed
            await send(f"workflows://127.0.0.1:{service.port}/0f0f1e2d/SIGNATURE-1/")


async def test_a_mail_arrives_with_its_title_and_whole_links():
    with chat.mailbox() as box:
        url = f"mailto://127.0.0.1:{box.port}/?from=gpu@example.com&to=ann@example.com&mode=insecure"
        await send(url, title="GPU 低利用率告警")
        [mail] = box.mails
        text = mail.get_body(("plain",)).get_content() if mail.is_multipart() else mail.get_content()
        assert (mail["subject"], mail["to"]) == ("GPU 低利用率告警", "ann@example.com")
        assert "https://gpu.example.com/owner/abc_-123\n" in text.replace("\r\n", "\n")
        assert " - 评分: 2.5%" in text
        box.refuses = True
        with pytest.raises(CallFailed):
            await send(url)


async def test_a_webhook_gets_json_and_keeps_its_own_query():
    with chat.Standin(lambda _: (204, b"")) as service:
        await send(f"{service.url}/hook/path?team=ml&x=1")
        [one] = service.received
        assert (one.path, one.query) == ("/hook/path", {"team": "ml", "x": "1"})
        assert (one.body["title"], one.body["message"].strip()) == ("a title", TEXT.strip())


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_nobody_listens_and_no_log_holds_the_address(caplog):
    with caplog.at_level(logging.DEBUG):
        for service in ("feishu", "webhook"):
            with pytest.raises(CallFailed) as e:
                await send("http://127.0.0.1:9/open-apis/bot/v2/hook/very-secret-token", service=service, secret="")
            assert "very-secret-token" not in str(e.value)
        with chat.Standin(lambda _: (500, {"code": 1})) as bot:
            for service in ("feishu", "webhook"):
                with pytest.raises(CallFailed, match="500"):
                    await send(f"{bot.url}/very-secret-token", service=service)
    assert "very-secret-token" not in caplog.text


async def test_a_service_that_hangs_is_given_up_and_the_next_message_has_a_new_thread(monkeypatch):
    with chat.Standin(chat.feishu()) as bot:
        sender = Sender(target(bot.url + "/hook", secret="", service="feishu", timeout=5.0), timeout=0.01)
        blocked, real = chat.threading.Event(), sender._sent
        monkeypatch.setattr(sender, "_sent", lambda *_: blocked.wait() and None)
        with pytest.raises(CallFailed, match="did not answer within"):
            await sender.send("t", "b")
        sender._timeout = 5.0
        monkeypatch.setattr(sender, "_sent", real)
        await sender.send("t", "b")
        blocked.set()
        assert len(bot.taken) == 1


async def test_a_message_behind_one_that_hangs_is_refused_and_its_sender_is_not_cancelled(monkeypatch):
    forward(0)
    sender = Sender(target("http://127.0.0.1:9/hook", secret="", service="feishu", timeout=5.0), timeout=5.0)
    blocked = chat.threading.Event()
    monkeypatch.setattr(sender, "_sent", lambda *_: blocked.wait() and None)
    first = asyncio.create_task(sender.send("t", "first"))
    await until(lambda: sender._worker._started and not sender._worker.waiting)
    sender._timeout = 3600.0
    second = asyncio.create_task(sender.send("t", "second"))
    await until(lambda: sender._worker.waiting)
    forward(4 * 5.0)
    with pytest.raises(CallFailed, match="did not answer within"):
        await first
    with pytest.raises(CallFailed, match="earlier message"):
        await second
    blocked.set()
