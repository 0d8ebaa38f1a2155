"""The part of docs/doctor.md and docs/doctor.zh-CN.md about `vgpuscope doctor --audit`, with every check it makes."""

from vgpuscope.logic.audit.checks import CODES
from vgpuscope.model.words import Language
from vgpuscope.views.audit.words import RULES
from vgpuscope.views.languages import one_of

_EN = """## Do the numbers agree? (`--audit`)

`vgpuscope doctor --audit` reads what a running system shows and compares the numbers with each other: answers of the
API, their CSV, pages of metrics, and what commands print with `--json`. It changes nothing.

```sh
vgpuscope doctor --audit                                                 # the services that doctor finds
vgpuscope doctor --audit --analyzer analyzer:8080 --cluster cluster:31993 --agent node-3:9394
vgpuscope doctor --audit --analyzer analyzer:8080 --json                 # for programs
```

- Every number has a [definition](definitions.md). Two places of one definition and one subject must show the same
  number. The auditor knows only definitions and the public shapes of answers; it shares no code with what makes them.
- Answers of different analyses are not compared. A difference is reported only if it is still there when it is read
  a second and a third time. If the numbers change meanwhile, the comparison is *not decided*, and not passed.
- A check that compared nothing is *not checked*, with the reason. What no service answered, and what the credentials
  of `VGPUSCOPE_TOKEN` may not read, is listed under *Not read*. What an answer does
  not decide is listed under *Not compared*: a chart of Prometheus does not give for how long its values were measured,
  so the mean of a long step over several nodes does not follow from its short steps.
- A difference is shown with both numbers, where each was read, and both definitions.
- Of a large fleet, the audit reads all lists, and the pages of some GPUs, pods, nodes and namespaces. It ends
  within six times `--deadline` (2 minutes), and sends at most 3,000 requests to a service.

| exit code | meaning |
|---|---|
| 0 | no two numbers contradict each other |
| 1 | some do |
| 2 | the time limit was too short to read a difference again, or the arguments are wrong |
| 3 | nothing could be compared |

| check | rule |
|---|---|
"""
_ZH = """## 数字是否一致（`--audit`）

`vgpuscope doctor --audit` 读取运行中的系统所显示的数字并相互比较：API 的应答、其 CSV、指标页面，以及各命令用 `--json` 输出的内容。它不会更改任何内容。

```sh
vgpuscope doctor --audit                                                 # doctor 找到的服务
vgpuscope doctor --audit --analyzer analyzer:8080 --cluster cluster:31993 --agent node-3:9394
vgpuscope doctor --audit --analyzer analyzer:8080 --json                 # 供程序使用
```

- 每个数字都有[定义](definitions.zh-CN.md)。同一对象、同一定义的数字在任何两处都必须相同。审计只知道定义和应答的公开结构，与生成应答的代码没有任何共用部分。
- 不同分析的应答不作比较。不一致之处要在第二次和第三次读取时仍然存在才会报告。如果其间数字发生变化，该比较为「未定」，不算通过。
- 没有比较任何数字的检查为「未检查」，并给出原因。没有服务应答的内容，以及 `VGPUSCOPE_TOKEN` 的凭据无权读取的内容，列在「未读取」中。应答本身无法判定的内容列在「未比较」中：来自 Prometheus 的图表不提供各数值的测量时长，因此涉及多个节点的长时间步平均值无法由短时间步推出。
- 每处不一致都显示两个数字、各自读取的位置和两个定义。
- 对于大规模集群，审计读取全部列表，以及部分 GPU、Pod、节点和命名空间的详情。它在 `--deadline` 的六倍时间（2 分钟）内结束，对一个服务最多发送 3,000 个请求。

| 退出码 | 含义 |
|---|---|
| 0 | 没有相互矛盾的数字 |
| 1 | 有相互矛盾的数字 |
| 2 | 时限太短，未能复读不一致之处；或参数错误 |
| 3 | 没有可以比较的数字 |

| 检查 | 规则 |
|---|---|
"""


def audit_section(language: Language) -> str:
    """The section, with the table of checks."""
    rows = (f"| `{code}` | {one_of(RULES[code], language)} |\n" for code in CODES)
    return (_ZH if language == "zh" else _EN) + "".join(rows)
