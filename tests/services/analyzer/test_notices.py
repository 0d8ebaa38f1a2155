"""The analyzer tells owners and takes their answers: a real store, a real HTTP server, the real apprise."""

import asyncio
import json
import re
import sys
import time
from contextlib import asynccontextmanager

import pytest

from tests.http.serving import until
from tests.services.analyzer.analyzing import BUSY, TOKEN, StubSource, reading, running, track
from tests.services.analyzer.controlling import BEARER, EAGER, analysed, cases, decided, doctored, idle_pod
from tests.sinks import chat
from vgpuscope.config import SETTINGS
from vgpuscope.logic.notices.links import signed
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.notices import SignedLink
from vgpuscope.services.analyzer.settings.check import check_settings
from vgpuscope.services.analyzer.settings.settings import Settings

BOT_SECRET = "a-bots-secret"
BASE = "https://gpu.example.com/prefix"


@pytest.fixture
def bot():
    with chat.Standin(chat.feishu(BOT_SECRET)) as service:
        yield service


def channel(bot, **more):
    return {"name": "ml", "url": bot.url + "/hook", "service": "feishu", "secret": BOT_SECRET} | more


def told(bot) -> list[str]:
    return [one.body["content"]["text"] for one in bot.taken]


@asynccontextmanager
async def analyzer(tmp_path, control, *channels, source=None, environ=(), **more):
    source = source or StubSource(reading(track(0), idle_pod()))
    flags = EAGER | {
        "analyzer.history": str(tmp_path / "h.db"),
        "control.enabled": True,
        "control.dry_run": False,
        "control.api_url": control.url,
        "notify.channels": list(channels),
        "notify.console_url": BASE,
        "notify.digest": 0.0,
        "reclaim.grace": 3600.0,
    }
    given = {"VGPUSCOPE_API_TOKEN": TOKEN} | dict(environ)
    async with running(source, environ=given, **(flags | more)) as one:
        await decided(one)
        yield one


def links(text: str) -> dict[str, str]:
    """The paths of a message's links, by action."""
    found = re.findall(rf"- (保留|推迟|立即归还): {re.escape(BASE)}(/owner/[\w-]+)", text)
    return {{"保留": "keep", "推迟": "snooze", "立即归还": "release"}[word]: path for word, path in found}


async def state(one) -> str:
    [case] = await cases(one)
    return case["state"]


async def in_grace(one, bot) -> dict[str, str]:
    await until(lambda: bot.taken)

    async def grace() -> bool:
        return await state(one) == "grace"

    await until(grace)
    return links(told(bot)[-1])


async def audit(one) -> list[dict]:
    return (await one.json("/api/v1/audit"))["entries"]


# ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_owner_is_told_before_anything_is_done_and_the_grace_period_begins_then(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot), **{"reclaim.grace": 0.0}) as one:
        found = await in_grace(one, bot)
        assert control.received == []
        [case] = await cases(one)
        assert case["notified_at"] is not None
        assert "- **ml/nb**\n - 评分: 11.5%\n" in told(bot)[0]
        assert set(found) == {"keep", "snooze", "release"}
        await analysed(one)
        await until(lambda: control.received)
        assert len(bot.taken) == 1
        what = [(entry["what"], entry["after"]) for entry in await audit(one)]
        assert ("notice_delivered", "") in what
        page = await one.metrics()
        assert 'vgpuscope_reclaim_notices_total{channel="ml",outcome="success"} 1' in page
        assert 'vgpuscope_reclaim_channel_works{channel="ml"} 1' in page


async def test_while_nobody_can_be_told_nothing_is_done_and_the_failure_is_seen(tmp_path, control, bot):
    bot.judge = lambda _: (200, {"code": 19021, "msg": "sign match fail"})
    async with analyzer(tmp_path, control, channel(bot), **{"reclaim.grace": 0.0}) as one:
        await until(lambda: len(bot.received) >= 2)  # tried again
        await analysed(one)
        assert (await state(one), control.received) == ("notified", [])
        [row] = (await one.json("/api/v1/notices"))["channels"]
        assert (row["state"], row["service"], row["language"]) == ("fails", "feishu", "zh")
        assert "19021" in row["error"]
        assert any(entry["what"] == "notice_failed" and "19021" in entry["reason"] for entry in await audit(one))
        assert 'vgpuscope_reclaim_channel_works{channel="ml"} 0' in await one.metrics()
        status, [example] = await doctored(one, "CHANNEL_FAILING")
        assert (status, example.startswith("ml: "), "19021" in example) == ("fail", True, True)
        bot.judge = chat.feishu(BOT_SECRET)
        await in_grace(one, bot)
        await analysed(one)
        await until(lambda: control.received)


async def test_a_dry_run_tells_nobody_and_counts_it(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot), **{"control.dry_run": True}) as one:
        assert await state(one) == "grace"
        assert 'vgpuscope_reclaim_actions_total{action="notice",outcome="dry_run"} 1' in await one.metrics()
        assert bot.received == []


async def test_the_action_notify_advises_and_never_acts(tmp_path, control, bot):
    more = {"reclaim.action": "notify", "reclaim.grace": 0.0}
    async with analyzer(tmp_path, control, channel(bot), **more) as one:
        found = await in_grace(one, bot)
        await analysed(one)
        [case] = await cases(one)
        assert (case["state"], control.received, len(bot.taken)) == ("grace", [], 1)
        assert "notify_only" in case["held_by"]
        assert set(found) == {"keep", "snooze"}  # nothing will be taken, so nothing can be given back early
        assert "系统不会自动收回" in told(bot)[0]


def many_idle(count: int) -> StubSource:
    pods = [
        track(n, util=0.0, tenant=Tenant(namespace="ml", pod=f"nb-{n}", container="main", pod_uid=f"uid-{n}"))
        for n in range(count)
    ]
    return StubSource(reading(*pods))


async def test_many_notices_share_one_message(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot), source=many_idle(12)) as one:

        async def all_told() -> bool:
            return {case["state"] for case in await cases(one)} == {"grace"}

        await until(all_told)
        assert len(bot.taken) == 1
        assert told(bot)[0].count("评分") == 12


async def test_what_does_not_fit_waits_for_the_next_message_and_nothing_is_cut(tmp_path, control):
    with chat.Standin(chat.wecom) as wecom:
        where = {"name": "w", "url": f"{wecom.url}/send?key=known-key", "service": "wecom"}
        async with analyzer(tmp_path, control, where, source=many_idle(9)) as one:

            async def all_told() -> bool:
                return {case["state"] for case in await cases(one)} == {"grace"}

            await until(all_told)
            texts = [sent.body["text"]["content"] for sent in wecom.taken]
            assert len(texts) > 1
            assert all(len(text.encode()) <= 2048 for text in texts)
            assert sorted(re.findall(r"ml/(nb-\d)", "".join(texts))) == [f"nb-{n}" for n in range(9)]
            tokens = [path for text in texts for path in re.findall(r"/prefix(/owner/[\w-]+)", text)]
            assert len(tokens) == 27
            assert (await one.get(tokens[-1])).status_code == 200


async def test_routes_by_namespace_and_for_operators(tmp_path, control, bot):
    with chat.Standin(chat.feishu()) as ops, chat.Standin(chat.feishu()) as web:
        async with analyzer(
            tmp_path,
            control,
            channel(bot, namespaces=["ml"]),
            {"name": "ops", "url": ops.url + "/h", "service": "feishu", "operators": True},
            {"name": "web", "url": web.url + "/h", "service": "feishu", "namespaces": ["web"]},
        ) as one:
            await in_grace(one, bot)
            assert (len(bot.taken), ops.received, web.received) == (1, [], [])


async def test_a_workload_that_works_again_is_told_of_and_its_link_has_nothing_to_do(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        busy = track(1, util=BUSY, tenant=Tenant(namespace="ml", pod="nb", container="main", pod_uid="uid-1"))
        one.source.answer = reading(track(0), busy)
        await analysed(one)
        await until(lambda: len(bot.taken) == 2)
        assert "GPU 已恢复使用，不再收回" in told(bot)[1]
        answer = await one.client.post(found["release"])
        assert (answer.status_code, answer.headers["x-vgpuscope-error"]) == (409, "CASE_UNFIT")


async def test_a_trial_message_needs_the_role_operate(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot), **{"reclaim.stop": True}) as one:
        assert (await one.client.post("/api/v1/notices/ml/test")).status_code in {401, 403}
        sent = await one.client.post("/api/v1/notices/ml/test", headers=BEARER)
        assert (sent.status_code, sent.json()) == (200, {"channel": "ml", "service": "feishu"})
        assert "该通知渠道可用" in told(bot)[0]
        assert (await one.client.post("/api/v1/notices/nobody/test", headers=BEARER)).status_code == 404
        bot.judge = lambda _: (200, {"code": 9499})
        failed = await one.client.post("/api/v1/notices/ml/test", headers=BEARER)
        assert (failed.status_code, failed.json()["error"]["code"]) == (502, "CALL_FAILED")


async def test_the_policy_no_longer_says_that_nobody_is_notified(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        policy = await one.json("/api/v1/reclaim/policy")
        assert not any("No channel" in text for text in policy["without"])
        assert (await one.json("/api/v1/notices"))["links"] is True


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.attack
async def test_a_scanner_that_follows_every_link_changes_nothing(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        entries = len(await audit(one))
        for path in found.values():
            for _ in range(2):
                shown = await one.get(path)
                assert (shown.status_code, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
                assert (await one.client.head(path)).status_code == 200
                assert (await one.get(path + "?seconds=86400")).status_code == 200
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
                assert (await one.client.request(method, path)).status_code == 405
        assert (await state(one), len(await audit(one))) == ("grace", entries)
        assert (await one.client.post(found["keep"])).status_code == 200  # they still work


@pytest.mark.attack
async def test_the_page_runs_nothing_and_tells_nobody_where_it_is(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        page = await one.get((await in_grace(one, bot))["keep"])
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert "noindex" in page.headers["x-robots-tag"]
        assert "<script" not in page.text
        assert 'action="/' not in page.text  # it works behind any path prefix
        assert "ml/nb" in page.text


@pytest.mark.parametrize(("action", "after"), [("keep", "exempt"), ("snooze", "snoozed")])
@pytest.mark.attack
async def test_a_link_works_once_and_needs_no_account(tmp_path, control, bot, action, after):
    more = {"analyzer.protect_reads": True}
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
    async with analyzer(tmp_path, control, channel(bot), **more) as one:
        assert (await one.get("/api/v1/reclaim")).status_code == 401
        done = await one.client.post(found[action] + "?seconds=14400")
        assert done.status_code == 200
        [case] = (await one.json("/api/v1/reclaim", headers=BEARER))["cases"]
        assert case["state"] == after
        for again in (await one.client.post(found[action]), await one.get(found[action])):
            assert (again.status_code, again.headers["x-vgpuscope-error"]) == (410, "LINK_USED")
            assert "已使用过" in again.text
        log = (await one.json("/api/v1/audit", headers=BEARER))["entries"]
        assert [entry["after"] for entry in log if entry["actor"] == "owner link"] == [after]


async def test_release_ends_the_grace_period_and_still_looks_again(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        await analysed(one)
        assert control.received == []  # an hour of grace
        assert (await one.client.post(found["release"])).status_code == 200
        assert control.received == []
        await analysed(one)
        await until(lambda: control.received)
        assert json.loads(control.received[0][1])["pod"] == "nb"


async def test_a_stop_holds_also_what_an_owner_agreed_to(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        await one.client.post("/api/v1/reclaim/stop", headers=BEARER)
        assert (await one.client.post(found["release"])).status_code == 200
        await analysed(one)
        [case] = await cases(one)
        assert (case["state"], control.received) == ("grace", [])
        assert "stop" in case["held_by"]


@pytest.mark.attack
async def test_of_many_posts_at_once_one_acts(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        answers = await asyncio.gather(*(one.client.post(found["snooze"]) for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200, *[410] * 7]
        moved = [entry for entry in await audit(one) if entry["actor"] == "owner link"]
        assert len(moved) == 1


@pytest.mark.attack
async def test_forged_expired_and_foreign_links_change_nothing(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
        keep, release = found["keep"], found["release"]
        forged = [
            keep[:-2] + ("AA" if keep[-2:] != "AA" else "BB"),
            keep + "A",
            "/owner/" + "A" * 100,
            "/owner/x",
            release[:40] + keep[40:],
            "/owner/" + "é" * 20,
        ]
        for path in forged:
            for answer in (await one.get(path), await one.client.post(path)):
                assert (answer.status_code, answer.headers.get("x-vgpuscope-error")) == (404, "LINK_INVALID")
                assert "链接无效" in answer.text
        assert (await one.client.post("/owner/%00")).status_code == 422
        assert await state(one) == "grace"
        key = one.analyzer.notices.link_key
        assert key is not None
        now = int(time.time())
        for link, status, code in (
            (SignedLink(case_id="uid-1", action="keep", expires=now - 1, nonce="nonce-11"), 410, "LINK_EXPIRED"),
            (SignedLink(case_id="uid-9", action="keep", expires=now + 99, nonce="nonce-12"), 404, "OBJECT_UNKNOWN"),
        ):
            path = "/owner/" + signed(link, key)
            for answer in (await one.get(path), await one.client.post(path)):
                assert (answer.status_code, answer.headers.get("x-vgpuscope-error")) == (status, code)
        assert await state(one) == "grace"
    other = {"notify.link_secret": "another-secret-of-at-least-32-chars"}
    async with analyzer(tmp_path, control, channel(bot), **other) as one:
        answer = await one.client.post(keep)
        assert answer.headers["x-vgpuscope-error"] == "LINK_INVALID"
        assert await state(one) == "grace"


@pytest.mark.attack
async def test_links_need_no_account_behind_a_guard_and_nothing_else_is_opened(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as one:
        found = await in_grace(one, bot)
    web = tmp_path / "web.yaml"
    web.write_text(f"bearer_tokens: [{{name: ops, sha256: '{'0' * 64}'}}]\n")
    more = {"analyzer.web_config_file": str(web)}
    async with analyzer(tmp_path, control, channel(bot), **more) as one:
        for path in ("/owner", "/owners/x", "/api/v1/notices", "/api/v1/owner/x", "/owner/../api/v1/reclaim"):
            answer = await one.get(path)
            assert answer.status_code == 401, path
        assert (await one.get(found["keep"])).status_code == 200
        assert (await one.client.post(found["keep"])).status_code == 200


async def test_an_owner_answers_through_a_replica_that_does_not_lead(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot)) as leader:
        found = await in_grace(leader, bot)
        flags = EAGER | {"analyzer.history": str(tmp_path / "h.db"), "notify.channels": [channel(bot)]}
        async with running(environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **flags) as follower:
            await until(lambda: follower.analyzer._replica.leadership.reachable)
            assert not follower.analyzer._replica.leads
            assert (await follower.client.post(found["keep"])).status_code == 200
            again = await follower.client.post(found["keep"])
            assert again.headers["x-vgpuscope-error"] == "LINK_USED"

            async def known() -> bool:
                return await state(leader) == "exempt"

            await until(known)
            await analysed(leader)
            assert (await state(leader), control.received) == ("exempt", [])
            stop = await leader.client.post("/api/v1/reclaim/stop", headers=BEARER)
            assert stop.status_code == 200  # it still leads


async def test_without_a_secret_or_an_address_there_are_no_links(tmp_path, control, bot):
    async with analyzer(tmp_path, control, channel(bot), **{"notify.console_url": None}) as one:
        assert await in_grace(one, bot) == {}
        assert "/owner/" not in told(bot)[0]
        assert "notify.console_url" in (await one.json("/api/v1/notices"))["without"][0]
    async with analyzer(tmp_path / "..", control, channel(bot), environ={"VGPUSCOPE_API_TOKEN": ""}) as one:
        body = await one.json("/api/v1/notices")
        assert body["links"] is False


# ── bad settings ─────────────────────────────────────────────────────────────────────────────────────────────────

PROM = {"prometheus.url": "http://prometheus"}
GOOD = {"name": "a", "url": "https://open.feishu.cn/open-apis/bot/v2/hook/abcdefgh"}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"url": "not a url"}, "is not a URL"),
        ({"url": "htp//x"}, "is not a URL"),
        ({"url": ""}, r"url: missing"),
        ({"url": "nope://x"}, "no service of apprise"),
        ({"url_file": "/x", "url": "https://a"}, "exclude each other"),
        ({"url": "", "url_file": "/nowhere/secret"}, "FileNotFoundError"),
        ({"name": "A B"}, "name"),
        ({"colour": "red"}, "unknown field"),
        ({"kinds": ["later"]}, "later"),
        ({"language": "fr"}, "fr"),
        ({"url": "https://example.com/x", "secret": "s"}, "only Feishu, Lark and DingTalk"),
        ({"templates": {"soon": "{{ missing }}"}}, "no field 'missing'"),
        ({"templates": {"soon": "{% for x in pod %}x{% endfor %}"}}, "a loop"),
        ({"templates": {"soon": "{{ pod"}}, "not a template"),
    ],
)
def test_a_bad_channel_is_refused_with_a_code_and_a_hint_and_without_its_secrets(bad, why):
    with pytest.raises(ConfigInvalid, match=why) as e:
        Settings(flags=PROM | {"notify.channels": [GOOD | bad]}, environ={}, file=None, check=check_settings)
    assert (e.value.code, bool(e.value.advice)) == ("CONFIG_INVALID", True)
    assert "abcdefgh" not in str(e.value)
    assert "not a url" not in str(e.value)


def test_two_channels_of_one_name_are_refused():
    with pytest.raises(ConfigInvalid, match="two channels"):
        Settings(flags=PROM | {"notify.channels": [GOOD, GOOD]}, environ={}, file=None, check=check_settings)


@pytest.mark.parametrize("module", ["apprise", "jinja2"])
def test_a_library_that_is_not_installed_is_named_with_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "vgpuscope.sinks.notices", raising=False)
    monkeypatch.delattr("vgpuscope.sinks.notices", raising=False)
    with pytest.raises(ConfigInvalid, match=f"{module} is not installed") as e:
        Settings(flags=PROM | {"notify.channels": [GOOD]}, environ={}, file=None, check=check_settings)
    assert "pip install 'vgpuscope[notify]'" in str(e.value)  # in one line
    Settings(flags=PROM, environ={}, file=None, check=check_settings)  # without channels nothing is needed


async def test_a_bad_template_in_the_file_leaves_the_running_settings_in_effect(tmp_path, bot):
    file = tmp_path / "s.yaml"

    def write(template: str) -> None:
        row = json.dumps(channel(bot, templates={"soon": template}))
        file.write_text(f"notify:\n  channels: [{row}]\n")

    write("{{ pod }}")
    settings = Settings(flags={"prometheus.url": "http://x"}, environ={}, file=str(file), check=check_settings)
    write("{{ podd }}")
    with pytest.raises(ConfigInvalid, match="podd"):
        settings.reload()
    assert settings.config.notify.channels[0].templates == {"soon": "{{ pod }}"}


def test_addresses_are_not_shown():
    settings = Settings(flags=PROM | {"notify.channels": [GOOD]}, environ={}, file=None, check=check_settings)
    shown = {one.path: one.shown(settings.loaded.value(one.path)) for one in SETTINGS}
    assert shown["notify.channels"] == "[redacted]"
