/** What is each GPU doing: all of them in one table. */
import { useApi } from "../api/client";
import type { GpuList, GpuRow, TenantRow } from "../api/shapes";
import { bytes, degrees, exactBytes, number, percent, shortId, watts } from "../parts/format";
import { className } from "../parts/heatmap";
import { PartNotes } from "../parts/partnote";
import { Age, ClassBadge, Copy, Link, Meter, Shown, Tag } from "../parts/pieces";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { t, word } from "../words";
import { NoGpus, shownClass } from "./overview";

export function GpusPage() {
  const found = useApi<GpuList>("/api/v1/gpus", { namespace: scope.value, limit: 100_000 });
  return (
    <>
      <div class="page-head">
        <div class="grow">
          <h1>{t("nav.gpus")}</h1>
          <p class="sub">{t("gpus.about")}</p>
        </div>
      </div>
      <Shown of={found} rows={14}>
        {(data) => (
          <>
            <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
            <GpuTable rows={data.rows} name="gpus" />
          </>
        )}
      </Shown>
    </>
  );
}

export function GpuTable({ rows, name, plain }: { rows: readonly GpuRow[]; name: string; plain?: boolean }) {
  return (
    <Table
      name={name}
      label={t("nav.gpus")}
      rows={rows}
      columns={COLUMNS}
      sort={plain ? "index" : "node"}
      rowKey={(row) => `${row.gpu_id}${row.mig ?? ""}`}
      open={(row) => go(pathOf("gpus", row.gpu_id), queryOf(row))}
      empty={<NoGpus />}
      plain={plain ?? false}
    />
  );
}

function queryOf(row: GpuRow): URLSearchParams {
  const query = carried();
  if (row.mig) query.set("mig", row.mig);
  return query;
}

export function GpuLink({ row }: { row: Pick<GpuRow, "gpu_id" | "mig" | "profile"> }) {
  return (
    <>
      <Link
        to={pathOf("gpus", row.gpu_id)}
        class="mono"
        {...(row.mig ? { query: { mig: row.mig } } : {})}
        title={row.gpu_id}
      >
        {shortId(row.gpu_id)}
      </Link>
      {row.profile && <Tag>{row.profile}</Tag>}
      <Copy text={row.gpu_id} />
    </>
  );
}

/** The pods on a GPU. A busy GPU with an idle tenant shows both. */
export function Tenants({ row }: { row: GpuRow }) {
  const shown = row.tenants.slice(0, 2);
  const more = row.tenants.length - shown.length;
  return (
    <span class="tenants">
      {shown.map((tenant) => (
        <TenantChip key={`${tenant.pod_uid}${tenant.container}`} tenant={tenant} />
      ))}
      {more > 0 && <Tag>{t("more", { n: more })}</Tag>}
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
      {tenant.namespace}/{tenant.pod}
      {tenant.verdict === "idle" && <b class="idle-mark"> {t("verdict.idle")}</b>}
    </Link>
  );
}

const COLUMNS: readonly Column<GpuRow>[] = [
  { key: "gpu_id", title: "col.gpu", value: (row) => row.gpu_id, show: (row) => <GpuLink row={row} />, width: 190 },
  {
    key: "node",
    title: "col.node",
    value: (row) => row.node,
    show: (row) => (row.node ? <Link to={pathOf("nodes", row.node)}>{row.node}</Link> : "–"),
    filter: (one) => one,
  },
  { key: "index", title: "col.index", value: (row) => row.index, numeric: true },
  { key: "model", title: "col.model", value: (row) => row.model, filter: (one) => one },
  {
    key: "use_class",
    title: "col.class",
    about: "about.class",
    value: (row) => shownClass(row),
    show: (row) => <ClassBadge name={shownClass(row)} />,
    filter: className,
  },
  {
    key: "tenants",
    title: "col.pods",
    about: "about.tenants",
    value: (row) => row.tenants.map((one) => `${one.namespace}/${one.pod}`),
    show: (row) => <Tenants row={row} />,
    width: 220,
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
    title: "col.use",
    about: "about.use_gpu",
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
    key: "use_p95",
    title: "col.p95",
    about: "about.p95",
    value: (row) => row.use.p95,
    show: (row) => percent(row.use.p95),
    numeric: true,
    optional: true,
  },
  {
    key: "use_max",
    title: "col.max",
    value: (row) => row.use.max,
    show: (row) => percent(row.use.max),
    numeric: true,
    optional: true,
  },
  {
    key: "sm_active",
    title: "col.sm",
    about: "about.sm",
    value: (row) => row.sm_active.mean,
    show: (row) => percent(row.sm_active.mean),
    numeric: true,
    optional: true,
  },
  {
    key: "memory_used",
    title: "col.memory",
    about: "about.memory",
    value: (row) => row.memory_used,
    show: (row) => <Memory used={row.memory_used} total={row.memory_total} />,
    numeric: true,
  },
  {
    key: "memory_total",
    title: "col.memory_total",
    value: (row) => row.memory_total,
    show: (row) => bytes(row.memory_total),
    numeric: true,
    optional: true,
  },
  {
    key: "allocated",
    title: "col.allocated",
    about: "about.allocated_gpu",
    value: (row) => row.allocation?.memory_ratio,
    show: (row) => percent(row.allocation?.memory_ratio),
    numeric: true,
  },
  {
    key: "cores",
    title: "col.cores",
    about: "about.cores",
    value: (row) => row.allocation?.cores,
    show: (row) => (row.allocation ? `${number(row.allocation.cores)} %` : "–"),
    numeric: true,
    optional: true,
  },
  {
    key: "slots",
    title: "col.slots",
    value: (row) => row.allocation?.slots,
    show: (row) => (row.allocation ? `${row.allocation.slots} / ${row.allocation.slots_capacity}` : "–"),
    numeric: true,
    optional: true,
  },
  {
    key: "power",
    title: "col.power",
    value: (row) => row.power,
    show: (row) =>
      row.power === null ? "–" : `${watts(row.power)}${row.power_limit ? ` / ${number(row.power_limit)}` : ""}`,
    numeric: true,
  },
  {
    key: "temperature",
    title: "col.temperature",
    value: (row) => row.temperature,
    show: (row) => degrees(row.temperature),
    numeric: true,
  },
  {
    key: "mode",
    title: "col.mode",
    about: "about.mode",
    value: (row) => row.mode,
    show: (row) => word(`mode.${row.mode}`, row.mode ?? "–"),
    filter: (one) => word(`mode.${one}`, one),
  },
  {
    key: "health",
    title: "col.health",
    value: (row) => row.health,
    show: (row) => <Health row={row} />,
    filter: (one) => one,
  },
  {
    key: "status",
    title: "col.status",
    about: "about.status",
    value: (row) => row.status,
    show: (row) => t(`status.${row.status}`),
    filter: (one) => word(`status.${one}`, one),
    optional: true,
  },
  {
    key: "score",
    title: "col.score",
    about: "about.score",
    value: (row) => row.score,
    show: (row) => number(row.score, 1),
    numeric: true,
  },
  {
    key: "confidence",
    title: "col.confidence",
    about: "about.confidence",
    value: (row) => row.confidence,
    show: (row) => percent(row.confidence),
    numeric: true,
    optional: true,
  },
  {
    key: "idle_since",
    title: "col.idle_for",
    value: (row) => row.idle_since,
    show: (row) => (row.idle_since ? <Age at={row.idle_since} /> : "–"),
    numeric: true,
  },
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
  if (row.last_seen)
    return (
      <Tag tone="bad">
        {t("health.silent")} <Age at={row.last_seen} />
      </Tag>
    );
  if (row.xids.length) return <Tag tone="bad">XID {row.xids.join(", ")}</Tag>;
  if (row.health === null) return <span class="muted">–</span>;
  return <Tag tone={row.health === "ok" ? "good" : "bad"}>{word(`gpu_health.${row.health}`, row.health)}</Tag>;
}
