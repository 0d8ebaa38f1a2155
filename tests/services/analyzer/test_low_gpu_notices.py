"""Messages that list low GPUs: a real analyzer and the real apprise; the text is that of gpu-oour's handbook."""

import zlib
from contextlib import asynccontextmanager

import pytest

from tests.http.serving import until
from tests.services.analyzer.analyzing import BUSY, IDLE, Ahead, StubSource, reading, running, track
from tests.sinks import chat
from tests.standins.llm import Llm
from vgpuscope.config import load
from vgpuscope.logic.notices.daily import next_time
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.errors import ConfigInvalid

HEADING = "⚠️ **GPU 低利用率告警**\n\n"


@pytest.fixture
def bot():
    with chat.Standin(chat.feishu()) as service:
        yield service


def pods(*names: str, util: float = IDLE):
    return [
        track(
            zlib.crc32(name.encode()) % 1000,
            util=util,
            tenant=Tenant(namespace=name.split("/")[0], pod=name.split("/")[1]),
        )
        for name in names
    ]


def fleet(*low: str, busy: tuple[str, ...] = ("ml/train",)):
    return reading(*pods(*low), *pods(*busy, util=BUSY))


def channel(bot, **more):
    return {"name": "ops", "url": bot.url + "/hook", "service": "feishu"} | more


@asynccontextmanager
async def listing(how, *channels, source=None, **more):
    """An analyzer without a store and without reclaim."""
    flags = {"scheduler.interval": 3600, "notify.low_gpus": how, "notify.channels": list(channels)}
    wall = more.pop("wall", None)
    clock = {"wall": wall} if wall else {}
    async with running(source or StubSource(fleet("ml/nb")), **clock, **(flags | {"notify.digest": 0.0} | more)) as one:
        await one.analysed()
        yield one


def texts(bot) -> list[str]:
    return [one.body["content"]["text"].rstrip("\n") for one in bot.taken]


async def test_a_gpu_that_becomes_low_is_told_once_with_the_text_of_the_handbook(bot):
    async with listing("change", channel(bot)) as one:
        await until(lambda: bot.taken)
        await one.analyse()
        one.source.answer = fleet("ml/nb", "dev/other")
        await one.analyse()
        await until(lambda: len(bot.taken) == 2 and not one.analyzer.low_gpus.waiting)
    assert texts(bot) == [
        f"{HEADING}- **ml/nb**\n - 评分: 11.5%",
        f"{HEADING}- **dev/other**\n - 评分: 11.5%",
    ]


@pytest.mark.parametrize(("language", "reason"), [("zh", "窗口内没有计算"), ("en", "Nothing was computed")])
async def test_the_reason_of_the_language_model_is_in_the_message_in_its_language(bot, language, reason):
    wall = Ahead()
    async with Llm() as model:
        asks = {"ai.enabled": True, "ai.api_url": f"{model.url}/v1/chat/completions", "ai.api_key": "k"}
        async with listing("change", channel(bot, language=language), wall=wall, **asks) as one:
            await until(lambda: one.analyzer.opinions.shown.parts)

            async def answered() -> bool:
                return any(row["ai_analysis"] for row in await one.json("/results"))

            await until(answered)
            wall.seconds = 61.0  # a change waits for opinions
            await until(lambda: bot.taken)
    (text,) = texts(bot)
    assert text.endswith(f"AI: {reason}")
    if language == "zh":
        assert text == f"{HEADING}- **ml/nb**\n - 评分: 11.5%\n - AI: {reason}"


async def test_a_digest_lists_all_of_them_again_after_its_time(bot):
    wall = Ahead()
    source = StubSource(fleet("ml/nb", "dev/other"))
    async with listing("digest", channel(bot), source=source, wall=wall, **{"notify.low_gpus_every": 600.0}) as one:
        await until(lambda: bot.taken)
        wall.seconds = 601.0
        await one.analyse()
        await until(lambda: len(bot.taken) == 2)
    assert all("ml/nb" in text and "dev/other" in text for text in texts(bot))


async def test_a_schedule_lists_them_at_its_times_only(bot):
    wall = Ahead()
    async with listing("schedule", channel(bot), wall=wall) as one:
        await until(lambda: one.analyzer.low_gpus._next_list)
        await one.analyzer.low_gpus.round()
        assert not bot.taken
        wall.seconds = one.analyzer.low_gpus._next_list - wall() + 1.0
        await one.analyse()
        await until(lambda: bot.taken)


@pytest.mark.parametrize(
    ("after", "times", "tz", "at"),
    [
        (1_800_000_000, ["09:00"], "UTC", 1_800_003_600),  # 2027-01-15 08:00 UTC
        (1_800_003_600, ["09:00"], "UTC", 1_800_090_000),
        (1_800_000_000, ["09:00", "17:30"], "Asia/Shanghai", 1_800_005_400),
    ],
)
def test_the_next_time_of_a_schedule(after, times, tz, at):
    assert next_time(after, times, tz) == at


async def test_a_channel_gets_the_gpus_of_its_namespaces_and_nothing_without_one(bot):
    source = StubSource(fleet("ml/nb", "dev/other"))
    with chat.Standin(chat.feishu()) as nobody:
        mine = channel(bot, namespaces=["dev"])
        others = channel(nobody, name="others", namespaces=["prod"])
        async with listing("digest", mine, others, source=source) as one:
            await until(lambda: bot.taken and not one.analyzer.low_gpus.waiting)
            assert not nobody.received
    assert texts(bot) == [f"{HEADING}- **dev/other**\n - 评分: 11.5%"]


async def test_names_cannot_mention_people_or_add_lines_and_a_long_list_is_one_message(bot):
    names = [f"ml/nb-{number}-{'x' * 200}" for number in range(200)]
    async with listing("digest", channel(bot), source=StubSource(fleet(*names, "ml/a\n<at user_id=all>"))) as one:
        await until(lambda: bot.taken and not one.analyzer.low_gpus.waiting)
    [text] = texts(bot)
    assert "<at" not in text
    assert len(text.encode()) < 19_000
    assert text.endswith("条未列出；完整列表见 /results/low。")


async def test_a_message_that_the_bot_refuses_is_sent_again(bot):
    wall, judge = Ahead(), bot.judge
    bot.judge = lambda _: (200, {"code": 9499, "msg": "Bad Request"})
    async with listing("change", channel(bot), wall=wall) as one:
        await until(lambda: one.analyzer.notices.counts["ops", "failure"])
        assert one.analyzer.low_gpus.waiting
        bot.judge = judge
        wall.seconds = 60.0
        await until(lambda: bot.taken)
        await until(lambda: not one.analyzer.low_gpus.waiting)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "notify.low_gpus: change, but there is no channel to send to"),
        ({"notify.low_gpus_at": ["9"]}, "notify.low_gpus: change, but there is no channel to send to"),
        (
            {"notify.low_gpus_at": ["9"], "notify.channels": [{"name": "a", "url": "https://a.example"}]},
            "notify.low_gpus_at: expected a time of day such as 09:00 (got '9')",
        ),
    ],
)
def test_settings_that_can_send_nothing_are_refused(more, reason):
    with pytest.raises(ConfigInvalid) as error:
        load(flags={"notify.low_gpus": "change", **more}, environ={})
    assert str(error.value) == reason
