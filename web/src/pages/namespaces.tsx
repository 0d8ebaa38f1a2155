/** Who has how much: every namespace with its GPUs, its quotas and its idle hours. */
import { useApi, withQuery } from "../api/client";
import type { NamespaceList, NamespaceRow } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { bytes, number, percent, watts } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { known, PartNotes } from "../parts/partnote";
import { Empty, Link, Meter, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { t } from "../words";

export function NamespacesPage() {
  const query = { namespace: scope.value, limit: 100_000 };
  const found = useApi<NamespaceList>("/api/v1/namespaces", query);
  return (
    <>
      <PageHead title={t("nav.namespaces")} about={t("namespaces.about")} />
      <Shown of={found} rows={10}>
        {(data) => (
          <div class="stack tight">
            <PartNotes parts={data.parts} names={["analysis", "cluster", "history"]} />
            <Table
              name="namespaces"
              label={t("nav.namespaces")}
              rows={data.rows}
              columns={known(data.parts, "cluster") ? COLUMNS : WITHOUT_QUOTAS}
              main={MAIN}
              sort="-gpus"
              rowKey={(row) => row.name}
              parts={data.parts}
              source={withQuery("/api/v1/namespaces", query)}
              open={(row) => go(pathOf("namespaces", row.name), carried())}
              empty={<Empty title={t("empty.namespaces")} why={t("empty.workloads_why")} doctor />}
            />
          </div>
        )}
      </Shown>
    </>
  );
}

/** The quota that is nearest to its limit. */
export function tightest(row: NamespaceRow): NamespaceRow["quotas"][number] | null {
  return row.quotas.filter((one) => one.ratio !== null).sort((a, b) => b.ratio! - a.ratio!)[0] ?? null;
}

const MAIN = ["name", "gpus", "use", "memory_allocated", "quota", "idle_gpu_hours", "pending"];
const COLUMNS: readonly Column<NamespaceRow>[] = [
  {
    key: "name",
    title: "col.namespace",
    long: true,
    value: (row) => row.name,
    show: (row) => <Link to={pathOf("namespaces", row.name)}>{row.name}</Link>,
  },
  { key: "gpus", title: "col.gpus", figure: "namespace.gpus", value: (row) => row.gpus, numeric: true },
  { key: "pods", title: "col.pods", figure: "namespace.pods", value: (row) => row.pods, numeric: true },
  {
    key: "by_class",
    figure: "namespace.by_class",
    title: "col.classes",
    value: (row) => Object.keys(row.by_class),
    show: (row) => <ClassBar figure="namespace.by_class" counts={row.by_class} />,
    width: 140,
  },
  {
    key: "use",
    figure: "namespace.use",
    title: "col.gpu_time",
    about: "about.use_namespace",
    value: (row) => row.use,
    show: (row) => <Meter value={row.use} />,
    numeric: true,
  },
  {
    key: "memory_allocated",
    figure: "namespace.memory_allocated",
    about: "about.request",
    part: "cluster",
    promql: PROMQL.tenant_request,
    title: "col.request",
    value: (row) => row.memory_allocated,
    show: (row) => bytes(row.memory_allocated),
    numeric: true,
  },
  {
    key: "memory_used",
    figure: "namespace.memory_used",
    about: "about.memory_namespace",
    promql: PROMQL.tenant_memory,
    title: "col.memory_used",
    value: (row) => row.memory_used,
    show: (row) => bytes(row.memory_used),
    numeric: true,
  },
  {
    key: "cores_allocated",
    figure: "namespace.cores_allocated",
    part: "cluster",
    promql: PROMQL.tenant_cores,
    title: "col.cores",
    about: "about.cores",
    value: (row) => row.cores_allocated,
    show: (row) => (row.cores_allocated === null ? "–" : `${number(row.cores_allocated)} %`),
    numeric: true,
  },
  {
    key: "quota",
    figure: "quota.ratio",
    part: "cluster",
    promql: PROMQL.quota,
    title: "col.quota",
    about: "about.quota",
    value: (row) => tightest(row)?.ratio ?? null,
    show: (row) => <Quota row={row} />,
    numeric: true,
  },
  {
    key: "idle_gpu_hours",
    figure: "namespace.idle_gpu_hours_day",
    part: "history",
    title: "col.idle_hours_day",
    about: "about.waste",
    value: (row) => row.idle_gpu_hours,
    show: (row) => number(row.idle_gpu_hours, 1),
    numeric: true,
  },
  {
    key: "idle_share",
    figure: "namespace.idle_ratio_day",
    about: "about.idle_share",
    part: "history",
    title: "col.idle_share_day",
    value: (row) => share(row),
    show: (row) => percent(share(row)),
    numeric: true,
  },
  {
    key: "power",
    figure: "namespace.power",
    title: "col.power",
    value: (row) => row.power,
    show: (row) => watts(row.power),
    numeric: true,
    optional: true,
  },
  {
    key: "pending",
    figure: "namespace.pending_pods",
    about: "about.pending",
    part: "cluster",
    promql: PROMQL.pending,
    title: "col.pending",
    value: (row) => row.pending_pods,
    show: (row) => (row.pending_pods ? <Tag tone="warn">{number(row.pending_pods)}</Tag> : number(row.pending_pods)),
    numeric: true,
  },
];

/** Without the cluster exporter no quota is known, which is not the same as no limit. */
const WITHOUT_QUOTAS = COLUMNS.map((one) => (one.key === "quota" ? { ...one, show: () => "–" } : one));

const share = (row: NamespaceRow): number | null =>
  row.idle_gpu_hours === null || !row.held_gpu_hours ? null : row.idle_gpu_hours / row.held_gpu_hours;

function Quota({ row }: { row: NamespaceRow }) {
  const one = tightest(row);
  return one ? (
    <span title={`${one.resource}: ${number(one.used)} / ${number(one.limit)}`}>
      <span data-figure="quota.ratio" data-key={`${row.name}/${one.resource}`}>
        <Meter value={one.ratio} />
      </span>
    </span>
  ) : (
    <span class="muted">{t("quota.none")}</span>
  );
}
