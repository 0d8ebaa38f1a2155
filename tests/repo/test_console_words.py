"""The console describes every setting of the analyzer in Chinese, too; the API describes them in English."""

import re

from tests.paths import REPOSITORY
from vgpuscope.config import SETTINGS

WORDS = (REPOSITORY / "web" / "src" / "words" / "settings.zh.ts").read_text()
SHOWN = {"analyzer", "prometheus", "scoring", "thresholds", "verdict", "scheduler", "gpu_defaults", "ai", "control"}


def test_every_setting_that_the_console_shows_has_a_chinese_description():
    told = set(re.findall(r'"([a-z_]+\.[a-z_]+)":', WORDS))
    shown = {setting.path for setting in SETTINGS if setting.path.partition(".")[0] in SHOWN}
    assert shown
    assert shown <= told, shown - told
