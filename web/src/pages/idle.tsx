/** What could be taken back: tenants and GPUs that are idle, for how long, and the evidence. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { GpuList, GpuRow, TenantRow, Waste } from "../api/shapes";
import { bytes, number, percent } from "../parts/format";
import { className } from "../parts/heatmap";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, ClassBadge, definition, Empty, Figure, Link, Panel, Shown, Tag } from "../parts/pieces";
import { type Column, Table } from "../parts/table";
import { range, scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t } from "../words";
import { GpuLink } from "./gpus";

/** One tenant that is idle, with the GPU that it holds. */
interface IdleRow {
  readonly gpu: GpuRow;
  readonly tenant: TenantRow;
}

export function IdlePage() {
  const found = useApi<GpuList>("/api/v1/gpus", { namespace: scope.value, limit: 100_000 });
  return (
    <>
      <PageHead title={t("nav.idle")} about={t("idle.about")} />
      <Shown of={found} rows={12}>
        {(data) => <Idle data={data} />}
      </Shown>
      <WasteTable />
    </>
  );
}

function Idle({ data }: { data: GpuList }) {
  const rows = useMemo(() => idleRows(data.rows), [data]);
  const gpus = new Set(rows.map((row) => row.gpu.gpu_id)).size;
  const unknown = data.rows.flatMap((row) => row.tenants).filter((tenant) => tenant.verdict === "unknown").length;
  const memory = rows.reduce((sum, row) => sum + (row.tenant.memory_allocated ?? row.tenant.memory_used ?? 0), 0);
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster"]} />
      <div class="figures">
        <Figure title={t("idle.tenants")} value={number(rows.length)} about={definition(t("about.idle"))} />
        <Figure title={t("idle.gpus")} value={number(gpus)} />
        <Figure title={t("idle.memory")} value={bytes(memory)} />
        <Figure title={t("idle.unknown")} value={number(unknown)} note={t("idle.unknown_note")} />
      </div>
      <Table
        name="idle"
        label={t("nav.idle")}
        rows={rows}
        columns={COLUMNS}
        sort="idle_since"
        rowKey={(row) => `${row.gpu.gpu_id}${row.gpu.mig}${row.tenant.pod_uid}${row.tenant.container}`}
        open={(row) => go(pathOf("workloads", row.tenant.namespace, row.tenant.pod), carried())}
        empty={<Empty title={t("empty.idle")} why={t("empty.idle_why")} />}
      />
    </div>
  );
}

/** Tenants that are proven idle. Unknown is never listed here. */
export function idleRows(rows: readonly GpuRow[]): IdleRow[] {
  return rows.flatMap((gpu) =>
    gpu.tenants.filter((tenant) => tenant.verdict === "idle").map((tenant) => ({ gpu, tenant })),
  );
}

const COLUMNS: readonly Column<IdleRow>[] = [
  {
    key: "pod",
    title: "col.pod",
    value: (row) => `${row.tenant.namespace}/${row.tenant.pod}`,
    show: (row) => (
      <Link to={pathOf("workloads", row.tenant.namespace, row.tenant.pod)}>
        {row.tenant.namespace}/{row.tenant.pod}
      </Link>
    ),
    width: 220,
  },
  {
    key: "idle_since",
    title: "col.idle_for",
    value: (row) => row.tenant.idle_since,
    show: (row) => <Age at={row.tenant.idle_since} />,
    numeric: true,
  },
  {
    key: "namespace",
    title: "col.namespace",
    value: (row) => row.tenant.namespace,
    filter: (one) => one,
    optional: true,
  },
  { key: "owner", title: "col.owner", value: (row) => row.tenant.owner, filter: (one) => one },
  {
    key: "use_class",
    title: "col.class",
    value: (row) => row.tenant.use_class,
    show: (row) => <ClassBadge name={row.tenant.use_class} />,
    filter: className,
  },
  {
    key: "gpu_class",
    title: "col.gpu_is",
    about: "about.gpu_is",
    value: (row) => row.gpu.use_class,
    show: (row) => <ClassBadge name={row.gpu.use_class} />,
    filter: className,
  },
  {
    key: "memory_allocated",
    title: "col.request",
    value: (row) => row.tenant.memory_allocated,
    show: (row) => bytes(row.tenant.memory_allocated),
    numeric: true,
  },
  {
    key: "memory_used",
    title: "col.memory",
    value: (row) => row.tenant.memory_used,
    show: (row) => bytes(row.tenant.memory_used),
    numeric: true,
  },
  {
    key: "use_max",
    title: "col.max",
    about: "about.max",
    value: (row) => row.tenant.use.max,
    show: (row) => percent(row.tenant.use.max, 1),
    numeric: true,
  },
  {
    key: "reason",
    title: "col.evidence",
    about: "about.evidence",
    value: (row) => row.gpu.reasons[0],
    show: (row) => <span class="muted">{named("reason", row.gpu.reasons[0])}</span>,
  },
  {
    key: "coverage",
    title: "col.coverage",
    about: "about.coverage",
    value: (row) => row.tenant.coverage,
    show: (row) => percent(row.tenant.coverage),
    numeric: true,
  },
  {
    key: "confidence",
    title: "col.confidence",
    about: "about.confidence",
    value: (row) => row.tenant.confidence,
    show: (row) => percent(row.tenant.confidence),
    numeric: true,
    optional: true,
  },
  { key: "gpu_id", title: "col.gpu", value: (row) => row.gpu.gpu_id, show: (row) => <GpuLink row={row.gpu} /> },
  { key: "node", title: "col.node", value: (row) => row.gpu.node, filter: (one) => one },
];

function WasteTable() {
  const found = useApi<Waste>("/api/v1/waste", { since: range.value, group_by: "tenant", limit: 200 });
  return (
    <Panel
      title={
        <>
          {t("idle.waste")} <span class="muted">{range.value}</span>
        </>
      }
    >
      <Shown of={found} rows={5}>
        {(data) =>
          data.rows.length === 0 ? (
            <div class="empty small">{t("empty.waste")}</div>
          ) : (
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    <th scope="col">{t("col.who")}</th>
                    <th scope="col" class="num">
                      {t("col.idle_hours")}
                    </th>
                    <th scope="col" class="num">
                      {t("col.used_hours")}
                    </th>
                    <th scope="col" class="num">
                      {t("col.idle_share")}
                    </th>
                    <th scope="col">{t("col.now")}</th>
                  </tr>
                </thead>
                <tbody>
                  {data.rows
                    .filter((row) => scope.value.length === 0 || scope.value.includes(row.namespace ?? ""))
                    .map((row, place) => (
                      <tr key={`${row.namespace}${row.pod}${place}`}>
                        <th scope="row">
                          {row.namespace && row.pod ? (
                            <Link to={pathOf("workloads", row.namespace, row.pod)}>
                              {row.namespace}/{row.pod}
                            </Link>
                          ) : (
                            t("value.several")
                          )}
                        </th>
                        <td class="num">{number(row.idle_gpu_hours, 1)}</td>
                        <td class="num">{number(row.in_use_gpu_hours, 1)}</td>
                        <td class="num">{percent(row.idle_ratio)}</td>
                        <td>
                          {row.verdict === "idle" ? (
                            <Tag tone="warn">{t("verdict.idle")}</Tag>
                          ) : (
                            t(`verdict.${row.verdict}`)
                          )}
                        </td>
                      </tr>
                    ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Shown>
    </Panel>
  );
}
