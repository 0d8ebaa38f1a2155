/** What is each GPU doing: all of them in one table. */
import { useApi, withQuery } from "../api/client";
import type { GpuList, GpuRow, Part, TenantRow } from "../api/shapes";
import { shownClass } from "../parts/classes";
import {
  classColumn,
  confidenceColumn,
  idleForColumn,
  maxColumn,
  nodeColumn,
  p95Column,
  scoreColumn,
} from "../parts/columns";
import { Value } from "../parts/figures";
import { NoGpus } from "../parts/fleetmap";
import { bytes, degrees, exactBytes, number, percent, shortId, shortModel, watts } from "../parts/format";
import { className } from "../parts/heatmap";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, Copy, Link, Meter, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t, word } from "../words";

export function GpusPage() {
  const query = { namespace: scope.value, limit: 100_000 };
  const found = useApi<GpuList>("/api/v1/gpus", query);
  return (
    <>
      <PageHead title={t("nav.gpus")} about={t("gpus.about")} />
      <Shown of={found} rows={14}>
        {(data) => (
          <div class="stack tight">
            <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
            <GpuTable rows={data.rows} name="gpus" parts={data.parts} source={withQuery("/api/v1/gpus", query)} />
          </div>
        )}
      </Shown>
    </>
  );
}

interface Props {
  readonly rows: readonly GpuRow[];
  readonly name: string;
  readonly parts: readonly Part[];
  readonly plain?: boolean;
  readonly source?: string;
  readonly without?: readonly string[]; // columns that say the same in every row
}

export function GpuTable({ rows, name, parts, plain = false, source, without = [] }: Props) {
  return (
    <Table
      name={name}
      label={t("nav.gpus")}
      rows={rows}
      columns={columnsWithout(without)}
      main={MAIN}
      sort={plain ? "index" : "node"}
      rowKey={keyOf}
      open={(row) => go(pathOf("gpus", row.gpu_id), queryOf(row))}
      empty={<NoGpus />}
      plain={plain}
      parts={parts}
      {...(source ? { source } : {})}
    />
  );
}

/** A GPU, or a MIG instance of one, for programs that read the page. */
export const keyOf = (row: Pick<GpuRow, "gpu_id" | "mig">): string =>
  row.mig ? `${row.gpu_id}/${row.mig}` : row.gpu_id;

/** The same list for the same names, so that a table is not sorted anew at every drawing. */
function columnsWithout(names: readonly string[]): readonly Column<GpuRow>[] {
  const key = names.join();
  let found = made.get(key);
  if (!found) {
    found = COLUMNS.filter((column) => !names.includes(column.key));
    made.set(key, found);
  }
  return found;
}
const made = new Map<string, readonly Column<GpuRow>[]>();

function queryOf(row: GpuRow): URLSearchParams {
  const query = carried();
  if (row.mig) query.set("mig", row.mig);
  return query;
}

export function GpuLink({ row }: { row: Pick<GpuRow, "gpu_id" | "mig" | "profile"> }) {
  return (
    <span class="gpu-link">
      <Link
        to={pathOf("gpus", row.gpu_id)}
        class="mono"
        {...(row.mig ? { query: { mig: row.mig } } : {})}
        title={row.mig ?? row.gpu_id}
      >
        {shortId(row.gpu_id)}
      </Link>
      {row.profile && <Tag>{row.profile}</Tag>}
      <Copy text={row.mig ?? row.gpu_id} />
    </span>
  );
}

/** The pods on a GPU. A busy GPU with an idle tenant shows both. */
export function Tenants({ row }: { row: GpuRow }) {
  const shown = row.tenants.slice(0, 1);
  const rest = row.tenants.slice(shown.length);
  const idle = rest.filter((tenant) => tenant.verdict === "idle").length;
  if (row.tenants.length === 0 && !row.others?.tenants)
    return <span class="muted">{row.held ? "–" : t("gpu.free")}</span>;
  return (
    <span class="tenants">
      {shown.map((tenant) => (
        <TenantChip key={`${tenant.pod_uid}${tenant.container}`} tenant={tenant} />
      ))}
      {rest.length > 0 && (
        <Tag
          tone={idle ? "warn" : "plain"}
          title={rest.map((one) => `${one.namespace}/${one.pod}: ${className(one.use_class)}`).join("\n")}
        >
          {idle ? t("more_idle", { n: rest.length, idle }) : t("more", { n: rest.length })}
        </Tag>
      )}
      {row.others && row.others.tenants > 0 && <Tag>{t("others", { n: row.others.tenants })}</Tag>}
    </span>
  );
}

function TenantChip({ tenant }: { tenant: TenantRow }) {
  return (
    <Link
      to={pathOf("workloads", tenant.namespace, tenant.pod)}
      class={`tenant c-${tenant.use_class}`}
      title={`${tenant.namespace}/${tenant.pod}: ${className(tenant.use_class)}`}
    >
      {tenant.verdict === "idle" && <b class="idle-mark">{t("class.idle")}</b>} {tenant.namespace}/{tenant.pod}
    </Link>
  );
}

const MAIN = ["gpu_id", "node", "index", "use_class", "tenants", "use", "memory_used"];
const COLUMNS: readonly Column<GpuRow>[] = [
  { key: "gpu_id", title: "col.gpu", value: (row) => row.gpu_id, show: (row) => <GpuLink row={row} /> },
  nodeColumn((row) => row.node),
  { key: "index", title: "col.index", value: (row) => row.index, numeric: true, names: "index" },
  classColumn(shownClass, PROMQL.gpu_class),
  {
    key: "tenants",
    title: "col.pods",
    long: true,
    about: "about.tenants",
    value: (row) => row.tenants.map((one) => `${one.namespace}/${one.pod}`),
    show: (row) => <Tenants row={row} />,
  },
  {
    key: "namespace",
    title: "col.namespace",
    value: (row) => [...new Set(row.tenants.map((one) => one.namespace))],
    filter: (one) => one,
    optional: true,
  },
  {
    key: "use",
    figure: "gpu.use",
    title: "col.use",
    about: "about.use_gpu",
    part: "analysis",
    promql: PROMQL.gpu_use,
    value: (row) => row.use.mean,
    show: (row) => (
      <Meter
        value={row.use.mean}
        marks={row.use.max === null ? [] : [{ at: row.use.max, label: t("mark.max", { value: percent(row.use.max) }) }]}
      />
    ),
    numeric: true,
  },
  {
    key: "memory_used",
    figure: "gpu.memory_used",
    title: "col.memory",
    about: "about.memory",
    part: "analysis",
    promql: PROMQL.gpu_memory,
    value: (row) => row.memory_used,
    show: (row) => <Memory used={row.memory_used} total={row.memory_total} />,
    numeric: true,
  },
  {
    key: "health",
    title: "col.health",
    about: "about.health",
    promql: PROMQL.gpu_health,
    value: (row) => row.health,
    show: (row) => <Health row={row} />,
    filter: (one) => (one ? named("health", one) : t("value.unknown")),
  },
  {
    key: "allocated",
    figure: "gpu.memory_allocated_ratio",
    title: "col.allocated",
    about: "about.allocated_gpu",
    part: "cluster",
    promql: PROMQL.gpu_allocated,
    value: (row) => row.allocation?.memory_ratio,
    show: (row) => percent(row.allocation?.memory_ratio),
    numeric: true,
  },
  idleForColumn("gpu.idle_seconds", (row) => row.idle_since),
  {
    key: "power",
    figure: "gpu.power",
    title: "col.power",
    about: "about.power_gpu",
    promql: PROMQL.gpu_power,
    value: (row) => row.power,
    show: (row) =>
      row.power === null ? "–" : <span title={t("of", { all: watts(row.power_limit) })}>{watts(row.power)}</span>,
    numeric: true,
  },
  {
    key: "temperature",
    figure: "gpu.temperature",
    title: "col.temperature",
    about: "about.temperature",
    part: "agents",
    promql: PROMQL.gpu_temperature,
    value: (row) => row.temperature,
    show: (row) => degrees(row.temperature),
    numeric: true,
  },
  {
    key: "model",
    title: "col.model",
    value: (row) => row.model,
    show: (row) => (row.model ? shortModel(row.model) : "–"),
    filter: shortModel,
  },
  {
    key: "mode",
    title: "col.mode",
    about: "about.mode",
    promql: PROMQL.gpu_mode,
    value: (row) => row.mode,
    show: (row) => word(`mode.${row.mode}`, row.mode ?? "–"),
    filter: (one) => word(`mode.${one}`, one),
  },
  scoreColumn("gpu.score", (row) => row.score, { part: "analysis", promql: PROMQL.gpu_score }),
  {
    key: "status",
    title: "col.status",
    about: "about.status",
    part: "analysis",
    value: (row) => row.status,
    show: (row) => t(`status.${row.status}`),
    filter: (one) => word(`status.${one}`, one),
    optional: true,
  },
  p95Column("gpu.use_p95", (row) => row.use.p95),
  maxColumn("gpu.use_max", (row) => row.use.max, { optional: true }),
  {
    key: "sm_active",
    figure: "gpu.sm_active",
    title: "col.sm",
    about: "about.sm",
    part: "analysis",
    value: (row) => row.sm_active.mean,
    show: (row) => percent(row.sm_active.mean),
    numeric: true,
    optional: true,
  },
  {
    key: "memory_total",
    figure: "gpu.memory_total",
    title: "col.memory_total",
    value: (row) => row.memory_total,
    show: (row) => bytes(row.memory_total),
    numeric: true,
    optional: true,
  },
  {
    key: "cores",
    figure: "gpu.cores_allocated",
    title: "col.cores",
    about: "about.cores",
    part: "cluster",
    promql: PROMQL.gpu_cores,
    value: (row) => row.allocation?.cores,
    show: (row) => (row.allocation ? `${number(row.allocation.cores)} %` : "–"),
    numeric: true,
    optional: true,
  },
  {
    key: "slots",
    figure: "gpu.slots_allocated",
    title: "col.slots",
    about: "about.slots",
    part: "cluster",
    promql: PROMQL.gpu_slots,
    value: (row) => row.allocation?.slots,
    show: (row) =>
      row.allocation ? (
        <>
          <Value figure="gpu.slots_allocated">{number(row.allocation.slots)}</Value> /{" "}
          <Value figure="gpu.slots_capacity">{number(row.allocation.slots_capacity)}</Value>
        </>
      ) : (
        "–"
      ),
    numeric: true,
    optional: true,
  },
  confidenceColumn("gpu.confidence", (row) => row.confidence),
];

export function Memory({ used, total }: { used: number | null; total: number | null }) {
  if (used === null)
    return (
      <span class="muted" title={t("value.not_measured")}>
        –
      </span>
    );
  if (!total) return <span title={exactBytes(used)}>{bytes(used)}</span>;
  return (
    <span title={`${exactBytes(used)} / ${exactBytes(total)}`}>
      <Meter value={used / total} text={bytes(used)} />
    </span>
  );
}

export function Health({ row }: { row: Pick<GpuRow, "health" | "xids" | "last_seen"> }) {
  if (row.last_seen) {
    return (
      <Tag tone="bad">
        {t("health.silent")} <Age at={row.last_seen} />
      </Tag>
    );
  }
  if (row.xids.length) return <Tag tone="bad">XID {row.xids.join(", ")}</Tag>;
  if (row.health === null)
    return (
      <span class="muted" title={t("value.not_measured")}>
        –
      </span>
    );
  return (
    <Tag tone={row.health === "ok" ? "good" : "bad"}>
      {word(`gpu_health.${row.health}`, named("health", row.health))}
    </Tag>
  );
}
