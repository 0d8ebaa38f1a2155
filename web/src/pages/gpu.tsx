/** One GPU: how its memory is divided, who uses it, how it was used, and why it is judged so. */
import type { ComponentChildren } from "preact";
import { analysed, useApi } from "../api/client";
import type { GpuDetail, GpuRow, MemoryLedger, TenantDetail, Timeline } from "../api/shapes";
import { shownClass } from "../parts/classes";
import { EventList } from "../parts/eventlist";
import { Covers, Num, NumHead, Said, Value } from "../parts/figures";
import { bytes, degrees, exactBytes, number, percent, shortId, shortModel, watts } from "../parts/format";
import { OpinionBox, opinionOf } from "../parts/opinion";
import { PageHead } from "../parts/pagehead";
import { current, known, PartNotes } from "../parts/partnote";
import {
  About,
  Age,
  ClassBadge,
  Copy,
  definition,
  Facts,
  Figure,
  Link,
  Meter,
  type Origin,
  Panel,
  Scroll,
  Shown,
  Tag,
  ToDoctor,
} from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { xidText } from "../parts/sentences";
import { Trends } from "../parts/trend";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { pathOf, place } from "../state/url";
import { t, word } from "../words";
import { Health } from "./gpus";

export function GpuPage({ names }: { names: string[] }) {
  const id = names[0]!;
  const mig = place.value.query.get("mig");
  const query = { mig, namespace: scope.value, lang: language.value };
  const found = useApi<GpuDetail>(`/api/v1/gpus/${encodeURIComponent(id)}`, query);
  const gpu = found.data?.gpu;
  return (
    <>
      <PageHead
        title={
          gpu?.node
            ? `${gpu.node} · ${t("gpu.index", { n: gpu.index ?? "?" })}${gpu.profile ? ` · ${gpu.profile}` : ""}`
            : shortId(id)
        }
        about={
          <span class="mono">
            {mig ?? id} <Copy text={mig ?? id} />
          </span>
        }
        back={["gpus", "nav.gpus"]}
      />
      <Shown of={found} rows={12}>
        {(data) => <Gpu data={data} />}
      </Shown>
    </>
  );
}

function Gpu({ data }: { data: GpuDetail }) {
  const { gpu } = data;
  const query = { gpu_id: gpu.gpu_id, mig: gpu.mig };
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <Head gpu={gpu} data={data} />
      {data.xids.map((xid) => (
        <p key={xid.xid} class={xid.fatal ? "notice bad" : "notice warn"} role="status">
          <span>
            <b>{xidText(xid.xid)}</b>. {word(`xid_action.${xid.action}`, xid.advice)}
          </span>
        </p>
      ))}
      <div class="columns">
        <Panel
          title={t("gpu.ledger")}
          actions={
            <About of={t("gpu.ledger")}>
              {definition(t("about.ledger"), { promql: PROMQL.ledger, source: t("part.agents") })}
            </About>
          }
          stale={!current(data.parts, "agents")}
        >
          <Ledger ledger={data.ledger} />
        </Panel>
        <Trends query={query} memory={gpu.memory_total} />
        <Panel title={t("gpu.tenants")} note={<Value figure="gpu.tenants">{number(data.tenants.length)}</Value>}>
          <TenantTable tenants={data.tenants} gpu={gpu} />
          {data.tenants.map((one) => (
            <OpinionBox
              key={`${one.tenant.pod_uid}${one.tenant.container}`}
              of={`${one.tenant.namespace}/${one.tenant.pod}`}
              opinion={opinionOf(one)}
            />
          ))}
        </Panel>
        <div class="half">
          <Why data={data} />
        </div>
        <div class="half">
          <Score data={data} />
        </div>
        {data.instances.length > 0 && (
          <Panel title={t("gpu.mig")} note={<Value figure="gpu.mig_instances">{number(data.instances.length)}</Value>}>
            <Instances data={data} />
          </Panel>
        )}
        <div class="half">
          <Panel title={t("gpu.hardware")} stale={!current(data.parts, "agents")}>
            <HardwareFacts data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel
            title={t("gpu.events")}
            actions={
              <Link to="events" query={{ q: gpu.gpu_id }}>
                {t("see_all")}
              </Link>
            }
          >
            <GpuEvents id={gpu.gpu_id} />
          </Panel>
        </div>
        <Panel title={t("gpu.queries")}>
          <Queries data={data} />
        </Panel>
      </div>
    </div>
  );
}

function Head({ gpu, data }: { gpu: GpuRow; data: GpuDetail }) {
  const say = (name: string, source: "analysis" | "cluster" | "agents"): Origin => ({
    promql: queryOf(data, name),
    source: t(`part.${source}`),
    at: data.at,
  });
  return (
    <>
      <div class="tags">
        <ClassBadge name={shownClass(gpu)} />
        <Health row={gpu} />
        {gpu.mode && <Tag>{word(`mode.${gpu.mode}`, gpu.mode)}</Tag>}
        {gpu.model && <Tag>{shortModel(gpu.model)}</Tag>}
        {gpu.node && <Link to={pathOf("nodes", gpu.node)}>{gpu.node}</Link>}
        {data.stale && (
          <Tag tone="warn">
            {t("stale.short")} <Age at={data.at} ago />
          </Tag>
        )}
      </div>
      <div class="figures six">
        <Figure
          title={t("col.use")}
          figure="gpu.use"
          value={percent(gpu.use.mean)}
          note={<Highest of="gpu.use" use={gpu.use} />}
          origin={{
            promql: queryOf(data, gpu.mig ? "sm_active" : "gpu_util"),
            source: gpu.signal ? word(`signal.${gpu.signal}`, gpu.signal) : null,
            at: data.at,
          }}
        />
        <Figure
          title={t("col.memory")}
          figure="gpu.memory_used"
          value={bytes(gpu.memory_used)}
          note={<Said text="of" numbers={{ all: ["gpu.memory_total", bytes(gpu.memory_total)] }} />}
          origin={say("memory_used", "analysis")}
        />
        <Figure
          title={t("col.allocated")}
          figure="gpu.memory_allocated_ratio"
          value={percent(gpu.allocation?.memory_ratio)}
          note={<Slots gpu={gpu} data={data} />}
          origin={{ promql: PROMQL.gpu_allocated, source: t("part.cluster") }}
          stale={!current(data.parts, "cluster")}
        />
        <Figure
          title={t("col.power")}
          figure="gpu.power"
          value={watts(gpu.power)}
          note={
            gpu.power_limit ? (
              <Said
                text={gpu.mig ? "gpu.power_whole" : "of"}
                numbers={{ all: ["gpu.power_limit", watts(gpu.power_limit)] }}
              />
            ) : (
              gpu.power === null && t("value.not_measured")
            )
          }
          origin={say("power", "agents")}
        />
        <Figure
          title={t("col.temperature")}
          figure="gpu.temperature"
          value={degrees(gpu.temperature)}
          note={gpu.temperature === null ? t("value.not_measured") : ""}
          origin={say("temperature", "agents")}
        />
        <Figure
          title={t("col.idle_for")}
          figure="gpu.idle_seconds"
          value={gpu.idle_since ? <Age at={gpu.idle_since} /> : "–"}
          note={t("verdict_is", { verdict: t(`verdict.${gpu.verdict}`) })}
          origin={{ promql: PROMQL.tenant_idle, source: t("part.analysis"), at: data.at }}
        />
      </div>
    </>
  );
}

/** The 95th percentile, if it is measured, and the maximum. `of`: the code of the mean. */
export function Highest({ of, use }: { of: string; use: { p95: number | null; max: number | null } }) {
  if (use.max === null) return <>{t("value.not_measured")}</>;
  const max = [`${of}_max`, percent(use.max)] as const;
  if (use.p95 === null) return <Said text="figure.max" numbers={{ max }} />;
  return <Said text="figure.p95_max" numbers={{ p95: [`${of}_p95`, percent(use.p95)], max }} />;
}

function Slots({ gpu, data }: { gpu: GpuRow; data: GpuDetail }) {
  if (!gpu.allocation) {
    if (!known(data.parts, "cluster")) return <>{t("part.cluster_needed")}</>;
    const given = data.tenants.find(({ tenant }) => tenant.memory_allocated !== null)?.tenant;
    if (given) {
      const memory = ["tenant.memory_allocated", bytes(given.memory_allocated), keyOf(gpu, given)] as const;
      return <Said text="gpu.by_scheduler" numbers={{ memory }} />;
    }
    if (data.tenants.some(({ tenant }) => tenant.allocated)) return <>{t("gpu.by_node")}</>;
    return <>{t("gpu.unregistered")}</>;
  }
  return (
    <Said
      text="gpu.slots"
      numbers={{
        used: ["gpu.slots_allocated", number(gpu.allocation.slots)],
        all: ["gpu.slots_capacity", number(gpu.allocation.slots_capacity)],
      }}
    />
  );
}

const queryOf = (data: GpuDetail, name: string): string | null =>
  data.queries.find((one) => one.name === name)?.promql ?? null;

// ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────

const SHADES = 8; // colours of containers, in the style sheet

const kindOf = (row: MemoryLedger["rows"][number], place: number): string =>
  row.kind === "container" ? `shade-${place % SHADES}` : row.kind;

function Ledger({ ledger }: { ledger: MemoryLedger | null }) {
  if (!ledger || ledger.total === 0) return <div class="empty small">{t("empty.ledger")}</div>;
  const text = ledger.rows.map((row) => `${nameOf(row)} ${bytes(row.memory)}`).join(", ");
  return (
    <>
      <div class="ledger" role="img" aria-label={text}>
        {ledger.rows.map(
          (row, place) =>
            row.kind !== "free" && (
              <span
                key={`${nameOf(row)}`}
                class={kindOf(row, place)}
                title={`${nameOf(row)}: ${bytes(row.memory)}`}
                style={{ width: `${(100 * row.memory) / ledger.total}%` }}
              />
            ),
        )}
      </div>
      <Scroll name="ledger" rows={ledger.rows.length}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.who")}</th>
              <NumHead title="col.memory" figure="gpu.memory_ledger" />
              <NumHead title="col.share" figure="gpu.memory_ledger_share" />
              <NumHead title="col.limit" figure="tenant.memory_limit" />
            </tr>
          </thead>
          <tbody>
            {ledger.rows.map((row, place) => (
              <tr key={nameOf(row)} data-key={row.kind === "container" ? nameOf(row) : row.kind}>
                <th scope="row">
                  <span class={`key ${kindOf(row, place)}`} aria-hidden="true" />
                  {row.namespace && row.pod ? (
                    <Link to={pathOf("workloads", row.namespace, row.pod)}>{nameOf(row)}</Link>
                  ) : (
                    nameOf(row)
                  )}{" "}
                  {row.allocated === false && <Tag tone="warn">{t("gpu.not_allocated")}</Tag>}
                </th>
                <Num figure="gpu.memory_ledger" title={exactBytes(row.memory)}>
                  {bytes(row.memory)}
                </Num>
                <Num figure="gpu.memory_ledger_share">{percent(row.memory / ledger.total, 1)}</Num>
                <Num figure="tenant.memory_limit">
                  {row.memory_limit === null ? (
                    <span class="muted">–</span>
                  ) : (
                    <Meter
                      value={row.memory_limit ? row.memory / row.memory_limit : null}
                      text={bytes(row.memory_limit)}
                    />
                  )}
                </Num>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function nameOf(row: MemoryLedger["rows"][number]): string {
  if (row.kind !== "container") return t(`ledger.${row.kind}`);
  return `${row.namespace}/${row.pod}${row.container ? ` · ${row.container}` : ""}`;
}

// ── tenants and evidence ──────────────────────────────────────────────────────────────────────────────────────────

const keyOf = (gpu: GpuRow, tenant: TenantDetail["tenant"]): string =>
  [gpu.gpu_id, gpu.mig, tenant.pod_uid, tenant.container].join("/");

function TenantTable({ tenants, gpu }: { tenants: readonly TenantDetail[]; gpu: GpuRow }) {
  if (tenants.length === 0)
    return <div class="empty small">{t(gpu.held ? "empty.tenants" : "empty.tenants_free")}</div>;
  return (
    <Scroll name="tenants" rows={tenants.length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.pod")}</th>
            <th scope="col">{t("col.class")}</th>
            <NumHead title="col.gpu_time" figure="tenant.use" />
            <NumHead title="col.max" figure="tenant.use_max" />
            <NumHead title="col.memory" figure="tenant.memory_used" />
            <NumHead title="col.limit" figure="tenant.memory_limit" />
            <NumHead title="col.cores_limit" figure="tenant.cores_limit" />
            <NumHead title="col.idle_for" figure="tenant.idle_seconds" />
            <NumHead title="col.last_kernel" figure="tenant.last_kernel" />
          </tr>
        </thead>
        <tbody>
          {tenants.map(({ tenant }) => (
            <tr key={`${tenant.pod_uid}${tenant.container}`} data-key={keyOf(gpu, tenant)}>
              <th scope="row">
                <Link to={pathOf("workloads", tenant.namespace, tenant.pod)}>
                  {tenant.namespace}/{tenant.pod}
                </Link>{" "}
                <span class="muted">{tenant.container}</span>
              </th>
              <td>
                <ClassBadge name={tenant.use_class} />
                {!tenant.own_numbers && gpu.shared && <About of={t("col.class")}>{t("about.no_own_numbers")}</About>}
              </td>
              <Num figure="tenant.use">
                <Meter value={tenant.use.mean} />
              </Num>
              <Num figure="tenant.use_max">{percent(tenant.use.max)}</Num>
              <Num figure="tenant.memory_used" title={exactBytes(tenant.memory_used)}>
                {bytes(tenant.memory_used)}
              </Num>
              <Num figure="tenant.memory_limit">{bytes(tenant.memory_limit)}</Num>
              <Num figure="tenant.cores_limit">
                {tenant.cores_limit === null ? "–" : `${number(tenant.cores_limit)} %`}
              </Num>
              <Num figure="tenant.idle_seconds">{tenant.idle_since ? <Age at={tenant.idle_since} /> : "–"}</Num>
              <Num figure="tenant.last_kernel">
                <Age at={tenant.last_kernel} ago />
              </Num>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Why({ data }: { data: GpuDetail }) {
  const { gpu } = data;
  return (
    <Panel
      title={t("gpu.why", { verdict: t(`verdict.${gpu.verdict}`) })}
      actions={gpu.verdict === "unknown" && <ToDoctor />}
    >
      {data.why.length === 0 ? (
        <div class="empty small">{t("empty.why")}</div>
      ) : (
        <ul class="sentences">
          {data.why.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
      <Facts
        rows={[
          ["col.confidence", percent(gpu.confidence), undefined, "gpu.confidence"],
          ["col.coverage", percent(gpu.coverage), undefined, "gpu.coverage"],
          ["col.signal", gpu.signal ? word(`signal.${gpu.signal}`, gpu.signal) : null],
        ]}
      />
      <Questions />
      <OpinionBox opinion={opinionOf(data)} />
    </Panel>
  );
}

/** The score against the threshold, and the range that it is in: another question than class and verdict. */
export function ScoreOf({ of, figure }: { of: { score: number | null; status: string }; figure: string }) {
  const low = analysed.value.low_score;
  const text =
    of.score === null ? "score.none" : low === null ? "score.is" : of.score < low ? "score.below" : "score.at";
  return (
    <Said
      text={text}
      numbers={{ score: [figure, number(of.score, 1)] }}
      values={{ low: number(low), range: word(`status.${of.status}`, of.status) }}
    />
  );
}

/** Three words for a GPU or tenant answer three questions. */
export function Questions() {
  return <p class="muted small">{t("judged.questions")}</p>;
}

function Score({ data }: { data: GpuDetail }) {
  return (
    <Panel
      title={<ScoreOf of={data.gpu} figure="gpu.score" />}
      note={<Covers figure="gpu.score" />}
      actions={
        <About of={t("col.score")}>{definition(t("about.score"), { promql: PROMQL.gpu_score, at: data.at })}</About>
      }
    >
      <Scroll name="score" rows={data.score_terms.length}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.term")}</th>
              <NumHead title="col.value" figure="judged.score_term" />
              <th scope="col" class="num" data-names="setting">
                {t("col.weight")}
              </th>
              <NumHead title="col.points" figure="judged.score_points" />
            </tr>
          </thead>
          <tbody>
            {data.score_terms.map((term) => (
              <tr key={term.name} data-key={term.name}>
                <th scope="row">{word(`term.${term.name}`, term.name)}</th>
                <Num figure="judged.score_term">
                  {term.value === null ? <span class="muted">{t("value.not_measured")}</span> : percent(term.value)}
                </Num>
                <td class="num" data-names="setting">
                  {percent(term.weight)}
                </td>
                <Num figure="judged.score_points">{number(term.points, 1)}</Num>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

// ── hardware, MIG, events, queries ────────────────────────────────────────────────────────────────────────────────

function Instances({ data }: { data: GpuDetail }) {
  return (
    <Scroll name="instances" rows={data.instances.length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.profile")}</th>
            <th scope="col">{t("col.instance")}</th>
            <th scope="col">{t("col.class")}</th>
            <NumHead title="col.memory" figure="gpu.memory_used" />
            <th scope="col">{t("col.pod")}</th>
          </tr>
        </thead>
        <tbody>
          {data.instances.map((one) => (
            <tr
              key={`${one.mig}${one.gpu_instance}`}
              data-key={`${data.gpu.gpu_id}/${one.mig ?? ""}`}
              class={one.mig === data.gpu.mig ? "chosen" : ""}
            >
              <th scope="row">{one.profile ?? "–"}</th>
              <td class="mono">
                {one.mig ? (
                  <Link to={pathOf("gpus", data.gpu.gpu_id)} query={{ mig: one.mig }}>
                    {shortId(one.mig)}
                  </Link>
                ) : (
                  "–"
                )}
              </td>
              <td>{one.use_class ? <ClassBadge name={one.use_class} /> : "–"}</td>
              <td class="num">
                <Value figure="gpu.memory_used">{bytes(one.memory_used)}</Value> /{" "}
                <Value figure="gpu.memory_total">{bytes(one.memory_total)}</Value>
              </td>
              <td>
                {one.namespace && one.pod ? (
                  <Link to={pathOf("workloads", one.namespace, one.pod)}>
                    {one.namespace}/{one.pod}
                  </Link>
                ) : (
                  "–"
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function HardwareFacts({ data }: { data: GpuDetail }) {
  const one = data.hardware;
  if (!one) return <div class="empty small">{t("empty.hardware")}</div>;
  const mega = (hertz: number | null): string | null => (hertz === null ? null : `${number(hertz / 1e6)} MHz`);
  const throttle = one.throttle.map((name) => word(`throttle.${name}`, name)).join(", ");
  const pair = (figure: string, corrected: number | null, not: number | null): ComponentChildren =>
    not === null ? null : (
      <>
        <Value figure={`${figure}_corrected`}>{number(corrected)}</Value> /{" "}
        <Value figure={`${figure}_uncorrected`}>{number(not)}</Value>
      </>
    );
  return (
    <Facts
      rows={[
        ["fact.serial", one.serial],
        ["fact.pci", one.pci_bus_id],
        ["fact.driver", one.driver_version],
        ["fact.sm_clock", mega(one.sm_clock), undefined, "gpu.sm_clock_now"],
        ["fact.memory_clock", mega(one.memory_clock), undefined, "gpu.memory_clock"],
        [
          "fact.memory_temperature",
          one.memory_temperature === null ? null : degrees(one.memory_temperature),
          undefined,
          "gpu.memory_temperature",
        ],
        ["fact.fan", one.fan === null ? null : percent(one.fan), undefined, "gpu.fan"],
        ["fact.throttle", throttle || (one.sm_clock === null ? null : t("value.none"))],
        ["fact.ecc", pair("gpu.ecc", one.ecc_corrected, one.ecc_uncorrected)],
        ["fact.remapped", pair("gpu.remapped", one.remapped_corrected, one.remapped_uncorrected)],
        ["fact.processes", one.processes === null ? null : number(one.processes), undefined, "gpu.processes"],
      ]}
    />
  );
}

function GpuEvents({ id }: { id: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { gpu_id: id, namespace: scope.value, limit: 8 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} gpu={false} node={false} />}
    </Shown>
  );
}

function Queries({ data }: { data: GpuDetail }) {
  if (data.queries.length === 0) return <div class="empty small">{t("empty.queries")}</div>;
  return (
    <dl class="queries">
      {data.queries.map((one) => (
        <div key={one.name}>
          <dt>{word(`query.${one.name}`, one.name)}</dt>
          <dd>
            <code>{one.promql}</code> <Copy text={one.promql} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
