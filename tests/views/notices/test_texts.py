"""The texts of notices: gpu-oour's own for Feishu, both languages, and templates that cannot do harm."""

from typing import Any

import pytest
from msgspec.structs import replace

from vgpuscope.model.notices import NOTICE_KINDS, LowUse, Notice
from vgpuscope.model.reclaim import Case, Share
from vgpuscope.views.case_reasons import CHINESE_REASONS
from vgpuscope.views.notices import templates, words
from vgpuscope.views.notices.message import FIELDS, Item, Style, check_template, fields, harmless, message, moment
from vgpuscope.views.notices.templates import TemplateRefused

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC


def share(number: int, score: float | None = 2.5) -> Share:
    return Share(gpu_id=f"GPU-{number}", model="A100", score=score, verdict="idle", idle_since=NOW - 7200)


def case(pod: str = "train-0", **more) -> Case:
    fields: dict[str, Any] = {"shares": (share(1),), "state": "notified", "since": NOW, "first_idle": NOW - 7200} | more
    return Case(id=f"uid-{pod}", uid=f"uid-{pod}", namespace="ml", pod=pod, **fields)


def item(kind="soon", opinion: str = "", links=None, **more) -> Item:
    notice = Notice(kind=kind, channel="c", at=NOW, case=case(**more), opinion=opinion)
    return Item(notice=notice, grace_end=NOW + 1800, links=links or {})


FEISHU = Style(language="zh", oour=True, tz="Asia/Shanghai")
LINKS = {name: f"https://gpu.example.com/owner/{name}" for name in ("keep", "snooze", "release")}


def oour(low_util_gpus) -> str:
    """gpu-oour's own function, word for word as its users have it, without the request that it sends."""
    content = "⚠️ **GPU 低利用率告警**\n\n"
    for gpu in low_util_gpus:
        content += f"- **{gpu['namespace']}/{gpu['pod']}**\n"
        content += f" - 评分: {gpu['score']}%\n"
        if gpu.get("ai_analysis"):
            content += f" - AI: {gpu['ai_analysis']['reason']}\n"
    return content


OURS = (" - GPU: ", " - 空闲开始: ", " - 收回时间: ", " - 保留: ", " - 推迟: ", " - 立即归还: ")


@pytest.mark.parametrize(
    ("language", "given", "shown"),
    [
        ("en", {"opinion": "no work", "opinion_zh": "没有计算"}, "no work"),
        ("zh", {"opinion": "no work", "opinion_zh": "没有计算"}, "没有计算"),
        ("zh", {"opinion": "no work"}, "no work"),
        ("en", {"opinion_zh": "没有计算"}, "没有计算"),
        ("zh", {"opinion_zh": "看 https://evil.example/ <a href=x>这里</a> @all"}, "看 … a href=x这里/a all"),
    ],
)
@pytest.mark.parametrize("low", [False, True])
def test_an_opinion_has_the_language_of_the_channel_and_no_markup_in_either(language, given, shown, low):
    use = LowUse(namespace="ml", pod="a", gpu_id="GPU-1", model="A100", score=1.0, idle_since="", **given)
    notice = (
        Notice(kind="low", channel="c", at=NOW, low=use)
        if low
        else Notice(kind="soon", channel="c", at=NOW, case=case(), **given)
    )
    assert fields(Item(notice=notice), Style(language=language)).opinion == shown


@pytest.mark.parametrize(("language", "marked"), [("en", "  AI: no work"), ("zh", "  AI：没有计算")])
def test_the_opinion_on_a_low_gpu_is_a_line_of_its_own(language, marked):
    use = LowUse(
        namespace="ml",
        pod="a",
        gpu_id="GPU-1",
        model="A100",
        score=1.0,
        idle_since="",
        opinion="no work",
        opinion_zh="没有计算",
    )
    notice = Notice(kind="low", channel="c", at=NOW, low=use)
    assert marked in message([Item(notice=notice)], Style(language=language)).body.split("\n")


@pytest.mark.parametrize("opinion", ["", "显存占用但无计算"])
def test_feishu_gets_gpu_oours_text_and_below_each_workload_what_its_owner_can_do(opinion):
    items = [item(pod="train-0", opinion=opinion, links=LINKS), item(pod="web-1", links=LINKS)]
    body = message(items, FEISHU).body
    theirs = oour(
        [
            {
                "namespace": "ml",
                "pod": "train-0",
                "score": 2.5,
                "ai_analysis": {"reason": opinion} if opinion else None,
            },
            {"namespace": "ml", "pod": "web-1", "score": 2.5},
        ]
    )
    assert [line for line in body.split("\n") if not line.startswith(OURS)] == theirs.split("\n")
    assert body.split("\n")[-7:-1] == [
        " - GPU: GPU-1 (A100)",
        " - 空闲开始: 2027-01-15 14:00 UTC+08:00",
        " - 收回时间: 2027-01-15 16:30 UTC+08:00 之后",
        " - 保留: https://gpu.example.com/owner/keep",
        " - 推迟: https://gpu.example.com/owner/snooze",
        " - 立即归还: https://gpu.example.com/owner/release",
    ]


def test_english_and_chinese_say_the_same():
    english = message([item(links=LINKS)], Style(language="en", console_url="https://gpu.example.com"))
    assert english.title == "vgpuscope: Idle GPUs will be taken back"
    assert english.body == (
        "Idle GPUs will be taken back\n\n"
        "- ml/train-0\n"
        "  GPUs: GPU-1 (A100); score 2.5%\n"
        "  Idle since 2027-01-15 06:00 UTC.\n"
        "  The GPUs will be taken back after 2027-01-15 08:30 UTC.\n"
        "  Keep the GPUs: https://gpu.example.com/owner/keep\n"
        "  Postpone: https://gpu.example.com/owner/snooze\n"
        "  Give them back now: https://gpu.example.com/owner/release\n"
        "\n"
        "Console: https://gpu.example.com/ui/idle"
    )
    chinese = message([item(links=LINKS)], Style(language="zh"))
    assert chinese.body == (
        "空闲 GPU 即将收回\n\n"
        "- ml/train-0\n"
        "  GPU：GPU-1 (A100)；评分 2.5%\n"
        "  空闲开始于 2027-01-15 06:00 UTC。\n"
        "  GPU 将在 2027-01-15 08:30 UTC 之后收回。\n"
        "  保留 GPU：https://gpu.example.com/owner/keep\n"
        "  推迟收回：https://gpu.example.com/owner/snooze\n"
        "  立即归还：https://gpu.example.com/owner/release\n"
    )


def test_what_is_not_known_is_left_out_and_several_gpus_are_named():
    plain = message([item(shares=(share(1, None), share(2, None)))], Style(language="en")).body
    assert "GPUs: GPU-1 (A100), GPU-2 (A100)\n" in plain
    assert "score" not in plain
    assert "https" not in plain
    feishu = message([item(shares=(share(1, None),))], FEISHU).body
    assert "评分" not in feishu


@pytest.mark.parametrize("kind", NOTICE_KINDS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_kind_has_a_text_that_is_a_valid_template(kind, language):
    check_template(kind, words.TEXTS[language][kind])
    machine = kind.startswith("breaker")
    one = item(kind)
    if machine:
        one = replace(one, notice=Notice(kind=kind, channel="c", at=NOW, turned=7, of=9))
    body = message([one], Style(language=language)).body
    assert body.strip()
    assert "{{" not in body
    if kind == "breaker_opened":
        assert "7" in body
        assert "9" in body


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_reason_of_a_case_has_words(language):
    assert set(words.REASONS[language]) == set(CHINESE_REASONS)  # the console and the commands have one for each
    refused = message([item("failed", reason="call_refused")], Style(language=language)).body
    assert words.REASONS[language]["call_refused"] in refused
    assert "call_refused" not in refused


def test_a_digest_has_one_heading_for_each_kind_and_says_how_many_follow():
    body = message([item(), item("taken", pod="b"), item(pod="c")], Style(language="en"), waiting=4).body
    assert body.count("Idle GPUs will be taken back\n") == 1
    assert body.index("ml/c") < body.index("Idle GPUs were taken back")
    assert body.endswith("4 more follow in the next message.")


def test_a_template_of_ones_own_replaces_the_text():
    style = Style(language="en", templates={"soon": "{{ namespace | upper }}: {{ pod }} until {{ grace_end }}"})
    assert "ML: train-0 until 2027-01-15 08:30 UTC" in message([item()], style).body


@pytest.mark.attack
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ ''.__class__ }}", "an attribute"),
        ("{{ ''['__class__'] }}", "an index"),
        ("{{ pod.__init__.__globals__ }}", "an attribute"),
        ("{% for x in range(9999999999) %}x{% endfor %}", "a loop"),
        ("{% for x in pod %}x{% endfor %}", "a loop"),
        ("{{ 'a' * 999999999 }}", "a product"),
        ("{{ 10 ** 999999999 }}", "a power"),
        ("{{ '%999999999d' % 1 }}", "Mod"),
        ("{{ pod.format() }}", "a call"),
        ("{{ lipsum(n=99999) }}", "a call"),
        ("{% set x = pod %}{{ pod }}", "an assignment"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "a macro"),
        ("{% include '/etc/passwd' %}", "an include"),
        ("{{ missing }}", "no field 'missing'"),
        ("{{ pod | attr('__class__') }}", "no filter 'attr'"),
        ("{{ pod | center(999999999) }}", "no filter 'center'"),
        ("{{ 'x' | replace('', pod) }}", "no filter 'replace'"),
        ("{{ self }}", "no field 'self'"),
        ("{{ config }}", "no field 'config'"),
        ("{{ pod", "not a template"),
        ("{% if pod %}", "not a template"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "longer than"),
        ("{{ " + "(" * 1900 + "1" + ")" * 1900 + " }}", "not a template"),
        ("x" * 4001, "longer than"),
    ],
)
def test_a_template_that_could_do_harm_or_fail_later_is_refused(source, why):
    with pytest.raises(TemplateRefused, match=why):
        templates.check(source, FIELDS)


@pytest.mark.parametrize(
    "source",
    [
        "{% if score > 5 %}high{% endif %}",  # the score is text
        "{{ pod - 1 }}",
        "{{ pod + gpu_count }}",
        "{{ pod | default(pod, pod, pod) }}",
        "{% if not keep_url %}{{ at - 1 }}{% endif %}",  # only if there is no link
        "{% if opinion %}{{ opinion - 1 }}{% endif %}",  # only if there is an opinion
        "{% if kind == 'soon' %}{{ kind - 1 }}{% endif %}",
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused(source):
    with pytest.raises(TemplateRefused, match="TypeError"):
        check_template("soon", source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ pod }}",
        "{% if score %}{{ score }}{% else %}-{% endif %}",
        "{{ owner or 'nobody' }}",
        "{{ pod ~ '/' ~ namespace }}",
    ],
)
def test_a_template_can_print_and_choose(source):
    check_template("soon", source)
    message([item()], Style(templates={"soon": source}))


@pytest.mark.attack
def test_a_models_words_bring_no_link_no_mention_and_no_line_of_their_own():
    text = harmless("idle\n- **ml/other**\nsee https://evil.example/x <at user_id='all'></at> <!channel> @all `x`")
    assert text == "idle - ml/other see … at user_id='all'/at !channel all x"
    assert len(harmless("x" * 9999)) == 300


def test_times_have_their_zone():
    assert moment(NOW, "UTC") == "2027-01-15 08:00 UTC"
    assert moment(NOW, "Asia/Kolkata") == "2027-01-15 13:30 UTC+05:30"
    assert moment(NOW, "America/New_York") == "2027-01-15 03:00 UTC-05:00"
