/** Who uses what: pods, or their owners or namespaces. */
import { useMemo } from "preact/hooks";
import { useApi, withQuery } from "../api/client";
import type { Part, WorkloadList, WorkloadRow } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import {
  classColumn,
  idleForColumn,
  maxColumn,
  namespaceColumn,
  ownerColumn,
  p95Column,
  requestColumn,
  scoreColumn,
} from "../parts/columns";
import { bytes, duration, number, watts } from "../parts/format";
import { className } from "../parts/heatmap";
import { realOwner } from "../parts/owner";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, ClassBadge, Empty, Link, Meter, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { pick, Segments } from "../parts/segments";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf, place, setQuery } from "../state/url";
import { t, word } from "../words";

const GROUPS = ["pod", "owner", "namespace"] as const;
type Group = (typeof GROUPS)[number];

export function WorkloadsPage() {
  const group = pick(GROUPS, place.value.query.get("by"), "pod");
  const query = { namespace: scope.value, group_by: group, limit: 200_000 };
  const found = useApi<WorkloadList>("/api/v1/workloads", query);
  return (
    <>
      <PageHead title={t("nav.workloads")} about={t("workloads.about")}>
        <Segments
          label={t("workloads.by")}
          options={GROUPS}
          at={group}
          names={(one) => t(`by.${one}`)}
          choose={(one) => setQuery({ by: one === "pod" ? null : one }, { replace: false })}
        />
      </PageHead>
      <Shown of={found} rows={14}>
        {(data) => (
          <div class="stack tight">
            <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
            <WorkloadTable
              key={group}
              rows={data.rows}
              name={`workloads-${group}`}
              group={group}
              parts={data.parts}
              source={withQuery("/api/v1/workloads", query)}
            />
          </div>
        )}
      </Shown>
    </>
  );
}

interface Props {
  readonly rows: readonly WorkloadRow[];
  readonly name: string;
  readonly parts: readonly Part[];
  readonly plain?: boolean;
  readonly group?: Group;
  readonly source?: string;
  readonly without?: readonly string[]; // columns that say the same in every row
}

export function WorkloadTable({ rows, name, parts, plain = false, group = "pod", source, without = [] }: Props) {
  // biome-ignore lint/correctness/useExhaustiveDependencies: the list is a literal of the page
  const columns = useMemo(
    () => COLUMNS[group].filter((column) => !without.includes(column.key)),
    [group, without.join()],
  );
  return (
    <Table
      name={name}
      label={t("nav.workloads")}
      rows={rows}
      columns={columns}
      main={MAIN}
      sort="name"
      rowKey={(row) => `${row.namespace}/${row.pod ?? row.owner ?? ""}/${row.pod_uid ?? ""}`}
      open={(row) => go(pathTo(row), queryTo(row))}
      empty={
        <Empty
          title={t("empty.workloads")}
          why={t(scope.value.length ? "empty.workloads_scope" : "empty.workloads_why")}
          doctor={scope.value.length === 0}
        />
      }
      plain={plain}
      parts={parts}
      {...(source ? { source } : {})}
    />
  );
}

/** Where a row leads: a pod, an owner's pods, or a namespace. */
function pathTo(row: WorkloadRow): string {
  const pod = row.pod ?? (row.owner?.startsWith("Pod/") ? row.owner.slice("Pod/".length) : null);
  if (pod) return pathOf("workloads", row.namespace, pod);
  return row.owner ? "workloads" : pathOf("namespaces", row.namespace);
}

/** An owner opens the list of its pods. */
function filtersTo(row: WorkloadRow): Record<string, string> {
  const owner = row.pod ? null : realOwner(row.owner);
  return owner ? { "f.owner": owner, "f.namespace": row.namespace } : {};
}

function queryTo(row: WorkloadRow): URLSearchParams {
  const query = carried();
  for (const [name, value] of Object.entries(filtersTo(row))) query.set(name, value);
  return query;
}

const nameOf = (row: WorkloadRow): string =>
  row.pod ? `${row.namespace}/${row.pod}` : row.owner ? `${row.namespace}/${row.owner}` : row.namespace;

function Name({ row }: { row: WorkloadRow }) {
  return (
    <>
      <Link to={pathTo(row)} query={filtersTo(row)}>
        {nameOf(row)}
      </Link>{" "}
      {row.blocked && (
        <Tag tone="warn" title={t("workload.blocked_why")}>
          {t("workload.blocked")}
        </Tag>
      )}
    </>
  );
}

/** Use of memory against its limit: how near the pod is to it. */
export function NearLimit({ row }: { row: Pick<WorkloadRow, "memory_used" | "memory_max" | "memory_limit"> }) {
  if (row.memory_used === null)
    return (
      <span class="muted" title={t("value.not_measured")}>
        –
      </span>
    );
  if (!row.memory_limit) return <>{bytes(row.memory_used)}</>;
  const marks =
    row.memory_max === null
      ? []
      : [{ at: row.memory_max / row.memory_limit, label: t("mark.max", { value: bytes(row.memory_max) }) }];
  return (
    <span title={t("workload.near", { used: bytes(row.memory_used), limit: bytes(row.memory_limit) })}>
      <Meter value={row.memory_used / row.memory_limit} text={bytes(row.memory_used)} marks={marks} />
    </span>
  );
}

const classText = (row: WorkloadRow): string => row.use_class ?? (row.state === "pending" ? "pending" : "mixed");

function classNamed(one: string): string {
  if (one === "mixed") return t("class.mixed");
  return one === "pending" ? t("workload.pending") : className(one);
}

function Class({ row }: { row: WorkloadRow }) {
  if (row.use_class) return <ClassBadge name={row.use_class} />;
  return row.state === "pending" ? (
    <Tag tone="warn">{t("workload.pending")}</Tag>
  ) : (
    <ClassBar figure="workload.by_class" counts={row.by_class} />
  );
}

/** How long a pod is idle, or how long it waits. */
function Lasts({ row }: { row: WorkloadRow }) {
  if (row.idle_since) return <Age at={row.idle_since} />;
  return (
    <span class="muted">
      {row.waited_seconds === null ? "–" : t("workload.waits", { time: duration(row.waited_seconds) })}
    </span>
  );
}

const MAIN = ["name", "use_class", "use", "memory_used", "memory_limit", "idle_since"];
const ALL: readonly Column<WorkloadRow>[] = [
  { key: "name", title: "col.workload", long: true, value: nameOf, show: (row) => <Name row={row} /> },
  classColumn(classText, PROMQL.tenant_class, { show: (row) => <Class row={row} />, filter: classNamed }),
  { key: "pods", title: "col.pods", figure: "workload.pods", value: (row) => row.pods, numeric: true },
  {
    key: "gpus",
    figure: "workload.gpus_or_instances",
    title: "col.gpus_or_instances",
    about: "about.gpus_count",
    value: (row) => row.gpus.length,
    show: (row) => number(row.gpus.length),
    numeric: true,
  },
  {
    key: "use",
    figure: "workload.use",
    title: "col.gpu_time",
    about: "about.use_tenant",
    part: "analysis",
    promql: PROMQL.tenant_use,
    value: (row) => row.use.mean,
    show: (row) => <Meter value={row.use.mean} />,
    numeric: true,
  },
  {
    key: "memory_used",
    figure: "workload.memory_used",
    title: "col.memory",
    about: "about.near",
    part: "agents",
    promql: PROMQL.tenant_memory,
    value: (row) => row.memory_used,
    show: (row) => <NearLimit row={row} />,
    numeric: true,
  },
  requestColumn("workload.memory_allocated", (row) => row.memory_allocated),
  {
    key: "memory_limit",
    figure: "workload.memory_limit",
    title: "col.limit",
    about: "about.limit",
    promql: PROMQL.tenant_limit,
    value: (row) => row.memory_limit,
    show: (row) => bytes(row.memory_limit),
    numeric: true,
  },
  idleForColumn("tenant.idle_seconds", (row) => row.idle_since, {
    promql: PROMQL.tenant_idle,
    show: (row) => <Lasts row={row} />,
  }),
  {
    key: "last_kernel",
    title: "col.last_kernel",
    about: "about.last_kernel",
    part: "agents",
    promql: PROMQL.last_kernel,
    value: (row) => row.last_kernel,
    show: (row) => <Age at={row.last_kernel} ago />,
    numeric: true,
    names: "moment",
  },
  {
    key: "nodes",
    title: "col.node",
    value: (row) => row.nodes,
    show: (row) => row.nodes.join(", ") || "–",
    filter: (one) => one,
  },
  ownerColumn((row) => row.owner),
  {
    key: "cores_limit",
    figure: "workload.cores_limit",
    title: "col.cores_limit",
    promql: PROMQL.tenant_cores,
    value: (row) => row.cores_limit,
    show: (row) => (row.cores_limit === null ? "–" : `${number(row.cores_limit)} %`),
    numeric: true,
  },
  {
    key: "cores_allocated",
    figure: "workload.cores_allocated",
    title: "col.cores",
    promql: PROMQL.tenant_cores,
    value: (row) => row.cores_allocated,
    show: (row) => (row.cores_allocated === null ? "–" : `${number(row.cores_allocated)} %`),
    numeric: true,
    optional: true,
  },
  p95Column("workload.use_p95", (row) => row.use.p95),
  maxColumn("workload.use_max", (row) => row.use.max),
  namespaceColumn((row) => row.namespace),
  {
    key: "state",
    title: "col.state",
    value: (row) => row.state,
    show: (row) => t(`workload_state.${row.state}`),
    filter: (one) => word(`workload_state.${one}`, one),
    optional: true,
  },
  {
    key: "verdict",
    title: "col.verdict",
    about: "about.verdict",
    promql: PROMQL.tenant_verdict,
    value: (row) => row.verdict,
    show: (row) => t(`verdict.${row.verdict}`),
    filter: (one) => word(`verdict.${one}`, one),
    optional: true,
  },
  {
    key: "memory_max",
    figure: "workload.memory_max",
    title: "col.memory_max",
    value: (row) => row.memory_max,
    show: (row) => bytes(row.memory_max),
    numeric: true,
    optional: true,
  },
  {
    key: "power",
    figure: "workload.power",
    title: "col.power",
    promql: PROMQL.tenant_power,
    value: (row) => row.power,
    show: (row) => watts(row.power),
    numeric: true,
    optional: true,
  },
  scoreColumn("workload.score", (row) => row.score, { optional: true }),
];

const COLUMNS: Record<Group, readonly Column<WorkloadRow>[]> = {
  pod: ALL.filter((column) => column.key !== "pods"),
  owner: ALL.filter((column) => !["state", "last_kernel", "owner"].includes(column.key)),
  namespace: ALL.filter((column) => !["state", "last_kernel", "owner", "namespace"].includes(column.key)),
};
