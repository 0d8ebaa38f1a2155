/** Who uses what: pods, or their owners or namespaces. */
import { useApi } from "../api/client";
import type { WorkloadList, WorkloadRow } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { bytes, duration, number, percent, watts } from "../parts/format";
import { className } from "../parts/heatmap";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, ClassBadge, Empty, Link, Meter, Shown, Tag } from "../parts/pieces";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf, place, setQuery } from "../state/url";
import { t, word } from "../words";
import { Segments } from "./overview";

const GROUPS = ["pod", "owner", "namespace"] as const;
type Group = (typeof GROUPS)[number];

export function WorkloadsPage() {
  const asked = place.value.query.get("by") as Group | null;
  const group = asked && GROUPS.includes(asked) ? asked : "pod";
  const found = useApi<WorkloadList>("/api/v1/workloads", { namespace: scope.value, group_by: group, limit: 200_000 });
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
          <>
            <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
            <WorkloadTable rows={data.rows} name={`workloads-${group}`} group={group} />
          </>
        )}
      </Shown>
    </>
  );
}

export function WorkloadTable({
  rows,
  name,
  plain,
  group = "pod",
}: {
  rows: readonly WorkloadRow[];
  name: string;
  plain?: boolean;
  group?: Group;
}) {
  return (
    <Table
      name={name}
      label={t("nav.workloads")}
      rows={rows}
      columns={COLUMNS[group]}
      sort="name"
      rowKey={(row) => `${row.namespace}/${row.pod ?? row.owner ?? ""}/${row.pod_uid ?? ""}`}
      open={(row) => go(pathTo(row), queryTo(row))}
      empty={
        <Empty
          title={t("empty.workloads")}
          why={t(scope.value.length ? "empty.workloads_scope" : "empty.workloads_why")}
        />
      }
      plain={plain ?? false}
    />
  );
}

function pathTo(row: WorkloadRow): string {
  if (row.pod) return pathOf("workloads", row.namespace, row.pod);
  return row.owner ? "workloads" : pathOf("namespaces", row.namespace);
}

/** An owner opens the list of its pods. */
function queryTo(row: WorkloadRow): URLSearchParams {
  const query = carried();
  if (!row.pod && row.owner) {
    query.set("f.owner", row.owner);
    query.set("f.namespace", row.namespace);
  }
  return query;
}

const nameOf = (row: WorkloadRow): string =>
  row.pod ? `${row.namespace}/${row.pod}` : row.owner ? `${row.namespace}/${row.owner}` : row.namespace;

function Name({ row }: { row: WorkloadRow }) {
  return (
    <>
      <Link
        to={pathTo(row)}
        {...(!row.pod && row.owner ? { query: { "f.owner": row.owner, "f.namespace": row.namespace } } : {})}
      >
        {nameOf(row)}
      </Link>
      {row.state === "pending" && <Tag tone="warn">{t("workload.pending")}</Tag>}
      {row.blocked && <Tag tone="warn">{t("workload.blocked")}</Tag>}
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

const classText = (row: WorkloadRow): string => row.use_class ?? "mixed";

const ALL: readonly Column<WorkloadRow>[] = [
  { key: "name", title: "col.workload", value: nameOf, show: (row) => <Name row={row} />, width: 220 },
  { key: "namespace", title: "col.namespace", value: (row) => row.namespace, filter: (one) => one, optional: true },
  { key: "owner", title: "col.owner", value: (row) => row.owner, filter: (one) => one },
  {
    key: "state",
    title: "col.state",
    value: (row) => row.state,
    show: (row) => t(`workload_state.${row.state}`),
    filter: (one) => word(`workload_state.${one}`, one),
    optional: true,
  },
  {
    key: "use_class",
    title: "col.class",
    about: "about.class",
    value: classText,
    show: (row) => (row.use_class ? <ClassBadge name={row.use_class} /> : <ClassBar counts={row.by_class} />),
    filter: (one) => (one === "mixed" ? t("class.mixed") : className(one)),
  },
  {
    key: "verdict",
    title: "col.verdict",
    about: "about.verdict",
    value: (row) => row.verdict,
    show: (row) => t(`verdict.${row.verdict}`),
    filter: (one) => word(`verdict.${one}`, one),
    optional: true,
  },
  { key: "pods", title: "col.pods", value: (row) => row.pods, numeric: true },
  {
    key: "gpus",
    title: "col.gpus",
    value: (row) => row.gpus.length,
    show: (row) => number(row.gpus.length),
    numeric: true,
  },
  { key: "nodes", title: "col.node", value: (row) => row.nodes, filter: (one) => one },
  {
    key: "use",
    title: "col.use",
    about: "about.use_tenant",
    value: (row) => row.use.mean,
    show: (row) => <Meter value={row.use.mean} />,
    numeric: true,
  },
  {
    key: "use_p95",
    title: "col.p95",
    about: "about.p95",
    value: (row) => row.use.p95,
    show: (row) => percent(row.use.p95),
    numeric: true,
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
    key: "memory_allocated",
    title: "col.request",
    about: "about.request",
    value: (row) => row.memory_allocated,
    show: (row) => bytes(row.memory_allocated),
    numeric: true,
  },
  {
    key: "memory_limit",
    title: "col.limit",
    about: "about.limit",
    value: (row) => row.memory_limit,
    show: (row) => bytes(row.memory_limit),
    numeric: true,
  },
  {
    key: "memory_used",
    title: "col.memory",
    about: "about.near",
    value: (row) => row.memory_used,
    show: (row) => <NearLimit row={row} />,
    numeric: true,
  },
  {
    key: "memory_max",
    title: "col.memory_max",
    value: (row) => row.memory_max,
    show: (row) => bytes(row.memory_max),
    numeric: true,
    optional: true,
  },
  {
    key: "cores_limit",
    title: "col.cores",
    about: "about.cores",
    value: (row) => row.cores_limit ?? row.cores_allocated,
    show: (row) =>
      (row.cores_limit ?? row.cores_allocated) === null ? "–" : `${number(row.cores_limit ?? row.cores_allocated)} %`,
    numeric: true,
  },
  {
    key: "power",
    title: "col.power",
    value: (row) => row.power,
    show: (row) => watts(row.power),
    numeric: true,
    optional: true,
  },
  {
    key: "score",
    title: "col.score",
    about: "about.score",
    value: (row) => row.score,
    show: (row) => number(row.score, 1),
    numeric: true,
    optional: true,
  },
  {
    key: "idle_since",
    title: "col.idle_for",
    value: (row) => row.idle_since,
    show: (row) =>
      row.idle_since ? (
        <Age at={row.idle_since} />
      ) : row.waited_seconds !== null ? (
        t("workload.waits", { time: duration(row.waited_seconds) })
      ) : (
        "–"
      ),
    numeric: true,
  },
  {
    key: "last_kernel",
    title: "col.last_kernel",
    about: "about.last_kernel",
    value: (row) => row.last_kernel,
    show: (row) => <Age at={row.last_kernel} ago />,
    numeric: true,
  },
];

const COLUMNS: Record<Group, readonly Column<WorkloadRow>[]> = {
  pod: ALL.filter((column) => column.key !== "pods"),
  owner: ALL.filter((column) => !["state", "last_kernel"].includes(column.key)),
  namespace: ALL.filter((column) => !["state", "last_kernel", "owner", "namespace"].includes(column.key)),
};
