/** One GPU: how its memory is divided, who uses it, how it was used, and why it is judged so. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { GpuDetail, GpuRow, MemoryLedger, SeriesHistory, TenantDetail, Timeline } from "../api/shapes";
import { Chart } from "../parts/chart";
import { ink } from "../parts/classes";
import { EventList } from "../parts/eventlist";
import { bytes, degrees, exactBytes, number, percent, shortId, watts } from "../parts/format";
import { PartNotes } from "../parts/partnote";
import {
  About,
  Age,
  ClassBadge,
  Copy,
  definition,
  Empty,
  Facts,
  Figure,
  Link,
  Meter,
  Panel,
  Shown,
  Tag,
} from "../parts/pieces";
import { language } from "../state/preferences";
import { range, scope } from "../state/scope";
import { pathOf, place } from "../state/url";
import { type Key, t, word } from "../words";
import { Health } from "./gpus";
import { shownClass } from "./overview";

export function GpuPage({ names }: { names: string[] }) {
  const id = names[0]!;
  const mig = place.value.query.get("mig");
  const found = useApi<GpuDetail>(`/api/v1/gpus/${encodeURIComponent(id)}`, {
    mig,
    namespace: scope.value,
    lang: language.value,
  });
  return (
    <>
      <div class="page-head">
        <div class="grow">
          <p class="crumbs">
            <Link to="gpus">{t("nav.gpus")}</Link> ›
          </p>
          <h1 class="mono">
            {shortId(id)} <Copy text={id} />
          </h1>
          <p class="sub mono">{mig ?? id}</p>
        </div>
      </div>
      <Shown of={found} rows={12}>
        {(data) => <Gpu data={data} />}
      </Shown>
    </>
  );
}

function Gpu({ data }: { data: GpuDetail }) {
  const { gpu } = data;
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <Head gpu={gpu} data={data} />
      <div class="columns">
        <Panel title={t("gpu.ledger")} actions={<About>{definition(t("about.ledger"))}</About>}>
          <Ledger ledger={data.ledger} data={data} />
        </Panel>
        <div class="half">
          <Trend title={t("gpu.use")} query={{ gpu_id: gpu.gpu_id, mig: gpu.mig }} quantities={["use", "use_max"]} />
        </div>
        <div class="half">
          <Trend
            title={t("gpu.memory")}
            query={{ gpu_id: gpu.gpu_id, mig: gpu.mig }}
            quantities={["memory_used"]}
            top={gpu.memory_total ?? 0}
          />
        </div>
        <Panel title={t("gpu.tenants", { n: number(data.tenants.length) })}>
          <TenantTable tenants={data.tenants} gpu={gpu} />
        </Panel>
        <div class="half">
          <Why data={data} />
        </div>
        <div class="half">
          <Score data={data} />
        </div>
        {data.instances.length > 0 && (
          <Panel title={t("gpu.mig")}>
            <Instances data={data} />
          </Panel>
        )}
        <div class="half">
          <Panel title={t("gpu.hardware")}>
            <HardwareFacts data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("gpu.events")}>
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
  return (
    <>
      <div class="tags">
        <ClassBadge name={shownClass(gpu)} />
        <Health row={gpu} />
        {gpu.mode && <Tag>{word(`mode.${gpu.mode}`, gpu.mode)}</Tag>}
        {gpu.model && <Tag>{gpu.model}</Tag>}
        {gpu.node && (
          <Link to={pathOf("nodes", gpu.node)}>
            {gpu.node} · {t("gpu.index", { n: gpu.index ?? "?" })}
          </Link>
        )}
        {data.stale && (
          <Tag tone="warn">
            {t("stale.short")} <Age at={data.at} ago />
          </Tag>
        )}
      </div>
      <div class="figures">
        <Figure
          title={t("col.use")}
          value={percent(gpu.use.mean)}
          note={t("figure.p95_max", { p95: percent(gpu.use.p95), max: percent(gpu.use.max) })}
          about={definition(t("about.use_gpu"), queryOf(data, "use"), gpu.signal)}
        />
        <Figure
          title={t("col.memory")}
          value={bytes(gpu.memory_used)}
          note={t("of", { all: bytes(gpu.memory_total) })}
          about={definition(t("about.memory"), queryOf(data, "memory_used"))}
        />
        <Figure
          title={t("col.allocated")}
          value={percent(gpu.allocation?.memory_ratio)}
          note={
            gpu.allocation
              ? t("gpu.slots", { used: gpu.allocation.slots, all: gpu.allocation.slots_capacity })
              : t("part.cluster_needed")
          }
          about={definition(t("about.allocated_gpu"))}
        />
        <Figure
          title={t("col.power")}
          value={watts(gpu.power)}
          note={gpu.power_limit ? t("of", { all: watts(gpu.power_limit) }) : ""}
          about={definition(t("about.power_gpu"), queryOf(data, "power"))}
        />
        <Figure
          title={t("col.temperature")}
          value={degrees(gpu.temperature)}
          about={definition(t("about.temperature"), queryOf(data, "temperature"))}
        />
        <Figure
          title={t("col.idle_for")}
          value={gpu.idle_since ? <Age at={gpu.idle_since} /> : "–"}
          note={t(`verdict.${gpu.verdict}`)}
          about={definition(t("about.idle_for"))}
        />
      </div>
    </>
  );
}

const queryOf = (data: GpuDetail, name: string): string | null =>
  data.queries.find((one) => one.name === name)?.promql ?? null;

// ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────

const SHADES = ["#2f6fb7", "#5b8fc9", "#7a5ea8", "#3f8f7a", "#b7862f", "#8a4f7d", "#4f7d8a", "#7d8a4f"];

function Ledger({ ledger, data }: { ledger: MemoryLedger | null; data: GpuDetail }) {
  if (!ledger || ledger.total === 0)
    return (
      <>
        <PartNotes parts={data.parts} names={["agents"]} />
        <div class="empty small">{t("empty.ledger")}</div>
      </>
    );
  const share = (memory: number): string => `${(100 * memory) / ledger.total}%`;
  return (
    <>
      <div class="ledger" role="img" aria-label={t("gpu.ledger")}>
        {ledger.rows.map(
          (row, place) =>
            row.kind !== "free" && (
              <span
                key={place}
                class={row.kind}
                title={`${nameOf(row)}: ${bytes(row.memory)}`}
                style={{
                  width: share(row.memory),
                  ...(row.kind === "container" ? { background: SHADES[place % SHADES.length] } : {}),
                }}
              />
            ),
        )}
      </div>
      <div class="scroll">
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
              <tr key={place}>
                <th scope="row">
                  <span
                    class={`key ${row.kind}`}
                    style={row.kind === "container" ? { background: SHADES[place % SHADES.length] } : {}}
                    aria-hidden="true"
                  />
                  {row.namespace && row.pod ? (
                    <Link to={pathOf("workloads", row.namespace, row.pod)}>{nameOf(row)}</Link>
                  ) : (
                    nameOf(row)
                  )}
                  {row.allocated === false && <Tag tone="warn">{t("gpu.not_allocated")}</Tag>}
                </th>
                <td class="num" title={exactBytes(row.memory)}>
                  {bytes(row.memory)}
                </td>
                <td class="num">{percent(row.memory / ledger.total, 1)}</td>
                <td class="num">
                  {row.memory_limit === null ? (
                    "–"
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
      </div>
    </>
  );
}

function nameOf(row: MemoryLedger["rows"][number]): string {
  if (row.kind !== "container") return t(`ledger.${row.kind}`);
  return `${row.namespace}/${row.pod}${row.container ? ` · ${row.container}` : ""}`;
}

// ── course ────────────────────────────────────────────────────────────────────────────────────────────────────────

type Quantity = SeriesHistory["columns"][number]["quantity"];

/** One chart of the history, for any object. */
export function Trend({
  title,
  query,
  quantities,
  top,
}: {
  title: string;
  query: Record<string, string | null | readonly string[]>;
  quantities: readonly Quantity[];
  top?: number;
}) {
  const found = useApi<SeriesHistory>("/api/v1/history/series", {
    range: range.value,
    points: 240,
    quantity: quantities,
    ...query,
  });
  return (
    <Panel
      title={
        <>
          {title} <span class="muted">{range.value}</span>
        </>
      }
    >
      <Shown of={found} rows={5}>
        {(data) => <TrendOf data={data} quantities={quantities} title={title} {...(top ? { top } : {})} />}
      </Shown>
    </Panel>
  );
}

const DASHED = new Set<Quantity>(["use_max", "memory_max"]);

function TrendOf({
  data,
  quantities,
  title,
  top,
}: {
  data: SeriesHistory;
  quantities: readonly Quantity[];
  title: string;
  top?: number;
}) {
  const columns = data.columns.filter((one) => quantities.includes(one.quantity));
  const lines = useMemo(
    () =>
      columns.map((one) => ({
        name: t(`quantity.${one.quantity}`),
        colour: DASHED.has(one.quantity) ? ink("ink-3") : ink("accent"),
        values: one.values,
        dashed: DASHED.has(one.quantity),
      })),
    // biome-ignore lint/correctness/useExhaustiveDependencies: the columns belong to the answer
    [data],
  );
  const unit = columns[0]?.unit ?? "ratio";
  const show = (value: number | null): string =>
    ({ ratio: percent(value), bytes: bytes(value), score: number(value, 1), watts: watts(value) })[unit];
  if (data.source === "none" || lines.every((line) => line.values.every((value) => value === null))) {
    return (
      <>
        <PartNotes parts={data.parts} names={["history", "prometheus"]} />
        <Empty title={t("empty.history")} why={t("empty.history_why")} />
      </>
    );
  }
  return (
    <>
      <Chart times={data.times} lines={lines} label={title} show={show} top={top ?? (unit === "ratio" ? 1 : 0)} />
      <p class="muted small">
        {t("chart.source", { source: t(`chart_source.${data.source}`), step: number(data.step_seconds) })}
      </p>
    </>
  );
}

// ── tenants and evidence ──────────────────────────────────────────────────────────────────────────────────────────

function TenantTable({ tenants, gpu }: { tenants: readonly TenantDetail[]; gpu: GpuRow }) {
  if (tenants.length === 0)
    return <div class="empty small">{t(gpu.held === false ? "empty.tenants_free" : "empty.tenants")}</div>;
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.pod")}</th>
            <th scope="col">{t("col.class")}</th>
            <th scope="col" class="num">
              {t("col.use")}
            </th>
            <th scope="col" class="num">
              {t("col.p95")}
            </th>
            <th scope="col" class="num">
              {t("col.memory")}
            </th>
            <th scope="col" class="num">
              {t("col.limit")}
            </th>
            <th scope="col" class="num">
              {t("col.cores")}
            </th>
            <th scope="col" class="num">
              {t("col.idle_for")}
            </th>
            <th scope="col">{t("col.last_kernel")}</th>
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
                {!tenant.own_numbers && gpu.shared && <About>{t("about.no_own_numbers")}</About>}
              </td>
              <td class="num">
                <Meter value={tenant.use.mean} />
              </td>
              <td class="num">{percent(tenant.use.p95)}</td>
              <td class="num" title={exactBytes(tenant.memory_used)}>
                {bytes(tenant.memory_used)}
              </td>
              <td class="num">
                {tenant.memory_limit ? (
                  <Meter
                    value={tenant.memory_used === null ? null : tenant.memory_used / tenant.memory_limit}
                    text={bytes(tenant.memory_limit)}
                  />
                ) : (
                  "–"
                )}
              </td>
              <td class="num">{tenant.cores_limit === null ? "–" : `${number(tenant.cores_limit)} %`}</td>
              <td class="num">{tenant.idle_since ? <Age at={tenant.idle_since} /> : "–"}</td>
              <td>
                <Age at={tenant.last_kernel} ago />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Why({ data }: { data: GpuDetail }) {
  return (
    <Panel title={t("gpu.why", { verdict: t(`verdict.${data.gpu.verdict}`) })}>
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
          ["col.confidence", percent(data.gpu.confidence)],
          ["col.coverage", percent(data.gpu.coverage)],
          ["col.signal", data.gpu.signal ? word(`signal.${data.gpu.signal}`, data.gpu.signal) : null],
        ]}
      />
    </Panel>
  );
}

function Score({ data }: { data: GpuDetail }) {
  return (
    <Panel title={t("gpu.score", { score: number(data.gpu.score, 1), status: t(`status.${data.gpu.status}`) })}>
      <div class="scroll">
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
                <th scope="row" title={term.reference}>
                  {t(`term.${term.name}` as Key)}
                </th>
                <td class="num">{term.value === null ? t("value.not_measured") : percent(term.value)}</td>
                <td class="num">{percent(term.weight)}</td>
                <td class="num">{number(term.points, 1)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

// ── hardware, MIG, events, queries ────────────────────────────────────────────────────────────────────────────────

function Instances({ data }: { data: GpuDetail }) {
  return (
    <div class="scroll">
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
            <tr key={`${one.mig}${one.gpu_instance}`}>
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
    </div>
  );
}

function HardwareFacts({ data }: { data: GpuDetail }) {
  const one = data.hardware;
  if (!one)
    return (
      <>
        <PartNotes parts={data.parts} names={["agents"]} />
        <div class="empty small">{t("empty.hardware")}</div>
      </>
    );
  const mega = (hertz: number | null): string | null => (hertz === null ? null : `${number(hertz / 1e6)} MHz`);
  return (
    <>
      <Facts
        rows={[
          ["fact.serial", one.serial],
          ["fact.pci", one.pci_bus_id],
          ["fact.driver", one.driver_version],
          ["fact.sm_clock", mega(one.sm_clock)],
          ["fact.memory_clock", mega(one.memory_clock)],
          ["fact.memory_temperature", degrees(one.memory_temperature)],
          ["fact.fan", percent(one.fan)],
          ["fact.throttle", one.throttle.length ? one.throttle.join(", ") : t("value.none")],
          [
            "fact.ecc",
            one.ecc_uncorrected === null ? null : `${number(one.ecc_corrected)} / ${number(one.ecc_uncorrected)}`,
          ],
          [
            "fact.remapped",
            one.remapped_uncorrected === null
              ? null
              : `${number(one.remapped_corrected)} / ${number(one.remapped_uncorrected)}`,
          ],
          ["fact.processes", number(one.processes)],
        ]}
      />
      {data.xids.map((xid) => (
        <p key={xid.xid} class={xid.fatal ? "notice bad" : "notice warn"}>
          <b>XID {xid.xid}</b> {xid.name}. {xid.action} {xid.advice}
        </p>
      ))}
    </>
  );
}

function GpuEvents({ id }: { id: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { gpu_id: id, limit: 20 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} />}
    </Shown>
  );
}

function Queries({ data }: { data: GpuDetail }) {
  if (data.queries.length === 0) return <div class="empty small">{t("empty.queries")}</div>;
  return (
    <dl class="queries">
      {data.queries.map((one) => (
        <div key={one.name}>
          <dt>{word(`quantity.${one.name}`, one.name)}</dt>
          <dd>
            <code>{one.promql}</code> <Copy text={one.promql} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
