"""The console describes every setting of the analyzer in Chinese, too; the API describes them in English."""

import re

from tests.paths import REPOSITORY
from vgpuscope.config import SETTINGS
from vgpuscope.services.analyzer.settings.settings import SECTIONS

WORDS = (REPOSITORY / "web" / "src" / "words" / "settings.zh.ts").read_text()
SHOWN = [setting for setting in SETTINGS if setting.section in SECTIONS]


def test_every_setting_that_the_console_shows_has_a_chinese_description():
    told = set(re.findall(r'"([a-z_]+\.[a-z_]+)":', WORDS))
    shown = {setting.path for setting in SHOWN}
    assert {path.partition(".")[0] for path in shown} == set(SECTIONS)
    assert shown <= told, shown - told


def test_every_text_that_stands_for_a_default_has_a_chinese_one():
    defaults = WORDS.partition("DEFAULTS_ZH")[2]
    told = set(re.findall(r'^  (?:"([^"]+)"|(\w+)):', defaults, re.MULTILINE))
    shown = {setting.unset for setting in SHOWN if " " in setting.unset}  # a sentence, and not a value
    assert shown
    assert shown <= {quoted or bare for quoted, bare in told}, shown
