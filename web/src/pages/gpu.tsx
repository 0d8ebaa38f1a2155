/** One GPU: how its memory is divided, who uses it, how it was used, and why it is judged so. */
import { useApi } from "../api/client";
import type { GpuDetail, GpuRow, MemoryLedger, TenantDetail, Timeline } from "../api/shapes";
import { shownClass } from "../parts/classes";
import { EventList } from "../parts/eventlist";
import { bytes, degrees, exactBytes, number, percent, shortId, shortModel, watts } from "../parts/format";
import { OpinionBox, opinionOf } from "../parts/opinion";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes } from "../parts/partnote";
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
        <Panel title={t("gpu.tenants")} note={number(data.tenants.length)}>
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
          <Panel title={t("gpu.mig")} note={number(data.instances.length)}>
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
  const say = (text: string, name: string, source: "analysis" | "cluster" | "agents") =>
    definition(text, { promql: queryOf(data, name), source: t(`part.${source}`), at: data.at });
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
          value={percent(gpu.use.mean)}
          note={highest(gpu.use)}
          about={definition(t("about.use_gpu"), {
            promql: queryOf(data, "gpu_util"),
            source: gpu.signal ? word(`signal.${gpu.signal}`, gpu.signal) : null,
            at: data.at,
          })}
        />
        <Figure
          title={t("col.memory")}
          value={bytes(gpu.memory_used)}
          note={t("of", { all: bytes(gpu.memory_total) })}
          about={say(t("about.memory"), "memory_used", "analysis")}
        />
        <Figure
          title={t("col.allocated")}
          value={percent(gpu.allocation?.memory_ratio)}
          note={allocation(gpu, data)}
          about={definition(t("about.allocated_gpu"), { promql: PROMQL.gpu_allocated, source: t("part.cluster") })}
          stale={!current(data.parts, "cluster")}
        />
        <Figure
          title={t("col.power")}
          value={watts(gpu.power)}
          note={
            gpu.power_limit
              ? t("of", { all: watts(gpu.power_limit) })
              : gpu.power === null
                ? t("value.not_measured")
                : ""
          }
          about={say(t("about.power_gpu"), "power", "agents")}
        />
        <Figure
          title={t("col.temperature")}
          value={degrees(gpu.temperature)}
          note={gpu.temperature === null ? t("value.not_measured") : ""}
          about={say(t("about.temperature"), "temperature", "agents")}
        />
        <Figure
          title={t("col.idle_for")}
          value={gpu.idle_since ? <Age at={gpu.idle_since} /> : "–"}
          note={t(`verdict.${gpu.verdict}`)}
          about={definition(t("about.idle_for"), {
            promql: PROMQL.tenant_idle,
            source: t("part.analysis"),
            at: data.at,
          })}
        />
      </div>
    </>
  );
}

/** The 95th percentile, if it is measured, and the maximum. */
export function highest(use: { p95: number | null; max: number | null }): string {
  if (use.max === null) return t("value.not_measured");
  if (use.p95 === null) return t("figure.max", { max: percent(use.max) });
  return t("figure.p95_max", { p95: percent(use.p95), max: percent(use.max) });
}

function allocation(gpu: GpuRow, data: GpuDetail): string {
  if (gpu.allocation) return t("gpu.slots", { used: gpu.allocation.slots, all: gpu.allocation.slots_capacity });
  return t(current(data.parts, "cluster") ? "gpu.unregistered" : "part.cluster_needed");
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
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.who")}</th>
              <th scope="col" class="num">
                {t("col.memory")}
              </th>
              <th scope="col" class="num">
                {t("col.share")}
              </th>
              <th scope="col" class="num">
                {t("col.limit")}
              </th>
            </tr>
          </thead>
          <tbody>
            {ledger.rows.map((row, place) => (
              <tr key={nameOf(row)}>
                <th scope="row">
                  <span class={`key ${kindOf(row, place)}`} aria-hidden="true" />
                  {row.namespace && row.pod ? (
                    <Link to={pathOf("workloads", row.namespace, row.pod)}>{nameOf(row)}</Link>
                  ) : (
                    nameOf(row)
                  )}{" "}
                  {row.allocated === false && <Tag tone="warn">{t("gpu.not_allocated")}</Tag>}
                </th>
                <td class="num" title={exactBytes(row.memory)}>
                  {bytes(row.memory)}
                </td>
                <td class="num">{percent(row.memory / ledger.total, 1)}</td>
                <td class="num">
                  {row.memory_limit === null ? (
                    <span class="muted">–</span>
                  ) : (
                    <Meter
                      value={row.memory_limit ? row.memory / row.memory_limit : null}
                      text={bytes(row.memory_limit)}
                    />
                  )}
                </td>
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

function TenantTable({ tenants, gpu }: { tenants: readonly TenantDetail[]; gpu: GpuRow }) {
  if (tenants.length === 0)
    return <div class="empty small">{t(gpu.held ? "empty.tenants" : "empty.tenants_free")}</div>;
  return (
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.pod")}</th>
            <th scope="col">{t("col.class")}</th>
            <th scope="col" class="num" title={t("about.use_tenant")}>
              {t("col.use")}
            </th>
            <th scope="col" class="num" title={t("about.max")}>
              {t("col.max")}
            </th>
            <th scope="col" class="num">
              {t("col.memory")}
            </th>
            <th scope="col" class="num" title={t("about.limit")}>
              {t("col.limit")}
            </th>
            <th scope="col" class="num" title={t("about.cores")}>
              {t("col.cores")}
            </th>
            <th scope="col" class="num" title={t("about.idle_for")}>
              {t("col.idle_for")}
            </th>
            <th scope="col" class="num" title={t("about.last_kernel")}>
              {t("col.last_kernel")}
            </th>
          </tr>
        </thead>
        <tbody>
          {tenants.map(({ tenant }) => (
            <tr key={`${tenant.pod_uid}${tenant.container}`}>
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
              <td class="num">
                <Meter value={tenant.use.mean} />
              </td>
              <td class="num">{percent(tenant.use.max)}</td>
              <td class="num" title={exactBytes(tenant.memory_used)}>
                {bytes(tenant.memory_used)}
              </td>
              <td class="num">{bytes(tenant.memory_limit)}</td>
              <td class="num">{tenant.cores_limit === null ? "–" : `${number(tenant.cores_limit)} %`}</td>
              <td class="num">{tenant.idle_since ? <Age at={tenant.idle_since} /> : "–"}</td>
              <td class="num">
                <Age at={tenant.last_kernel} ago />
              </td>
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
          ["col.confidence", percent(gpu.confidence), t("about.confidence")],
          ["col.coverage", percent(gpu.coverage), t("about.coverage")],
          ["col.signal", gpu.signal ? word(`signal.${gpu.signal}`, gpu.signal) : null],
        ]}
      />
      <OpinionBox opinion={opinionOf(data)} />
    </Panel>
  );
}

function Score({ data }: { data: GpuDetail }) {
  const { score, status } = data.gpu;
  return (
    <Panel
      title={t("gpu.score", { score: number(score, 1), status: t(`status.${status}`) })}
      actions={
        <About of={t("col.score")}>{definition(t("about.score"), { promql: PROMQL.gpu_score, at: data.at })}</About>
      }
    >
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.term")}</th>
              <th scope="col" class="num">
                {t("col.value")}
              </th>
              <th scope="col" class="num">
                {t("col.weight")}
              </th>
              <th scope="col" class="num">
                {t("col.points")}
              </th>
            </tr>
          </thead>
          <tbody>
            {data.score_terms.map((term) => (
              <tr key={term.name}>
                <th scope="row">{word(`term.${term.name}`, term.name)}</th>
                <td class="num">
                  {term.value === null ? <span class="muted">{t("value.not_measured")}</span> : percent(term.value)}
                </td>
                <td class="num">{percent(term.weight)}</td>
                <td class="num">{number(term.points, 1)}</td>
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
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.profile")}</th>
            <th scope="col">{t("col.instance")}</th>
            <th scope="col">{t("col.class")}</th>
            <th scope="col" class="num">
              {t("col.memory")}
            </th>
            <th scope="col">{t("col.pod")}</th>
          </tr>
        </thead>
        <tbody>
          {data.instances.map((one) => (
            <tr key={`${one.mig}${one.gpu_instance}`} class={one.mig === data.gpu.mig ? "chosen" : ""}>
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
                {bytes(one.memory_used)} / {bytes(one.memory_total)}
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
  const pair = (corrected: number | null, not: number | null): string | null =>
    not === null ? null : `${number(corrected)} / ${number(not)}`;
  return (
    <Facts
      rows={[
        ["fact.serial", one.serial],
        ["fact.pci", one.pci_bus_id],
        ["fact.driver", one.driver_version],
        ["fact.sm_clock", mega(one.sm_clock)],
        ["fact.memory_clock", mega(one.memory_clock)],
        ["fact.memory_temperature", one.memory_temperature === null ? null : degrees(one.memory_temperature)],
        ["fact.fan", one.fan === null ? null : percent(one.fan)],
        ["fact.throttle", throttle || (one.sm_clock === null ? null : t("value.none"))],
        ["fact.ecc", pair(one.ecc_corrected, one.ecc_uncorrected)],
        ["fact.remapped", pair(one.remapped_corrected, one.remapped_uncorrected)],
        ["fact.processes", one.processes === null ? null : number(one.processes)],
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
