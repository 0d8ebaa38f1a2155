/** One namespace: its pods and GPUs, its quotas, its course. */
import { useApi } from "../api/client";
import type { NamespaceDetail } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { Course } from "../parts/course";
import { bytes, number, percent } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes } from "../parts/partnote";
import { Copy, definition, Figure, Link, Meter, Panel, Scroll, Shown } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { Trends } from "../parts/trend";
import { href } from "../state/url";
import { t } from "../words";
import { GpuTable } from "./gpus";
import { WorkloadTable } from "./workloads";

export function NamespacePage({ names }: { names: string[] }) {
  const name = names[0]!;
  const found = useApi<NamespaceDetail>(`/api/v1/namespaces/${encodeURIComponent(name)}`);
  const mine = `${location.origin}${href("")}?scope=${encodeURIComponent(name)}`;
  return (
    <>
      <PageHead
        title={
          <>
            {name} <Copy text={name} />
          </>
        }
        back={["namespaces", "nav.namespaces"]}
      >
        <a class="button" href={mine}>
          {t("namespace.only")}
        </a>
        <Copy text={mine} label={t("namespace.copy")} />
      </PageHead>
      <Shown of={found} rows={12}>
        {(data) => <Namespace data={data} name={name} />}
      </Shown>
    </>
  );
}

function Namespace({ data, name }: { data: NamespaceDetail; name: string }) {
  const row = data.namespace;
  const hasCluster = current(data.parts, "cluster");
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents", "history"]} />
      <div class="tags">
        <ClassBar counts={row.by_class} />
      </div>
      <div class="figures six">
        <Figure
          title={t("col.gpus")}
          value={number(row.gpus)}
          note={t("node.pods", { n: number(row.pods) })}
          about={definition(t("about.gpus_count"), { source: t("part.analysis") })}
        />
        <Figure
          title={t("col.use")}
          value={percent(row.use)}
          note={t("namespace.window")}
          about={definition(t("about.use_namespace"), { promql: PROMQL.tenant_use, source: t("part.analysis") })}
        />
        <Figure
          title={t("col.memory_used")}
          value={bytes(row.memory_used)}
          note={t("namespace.window")}
          about={definition(t("about.memory_namespace"), { promql: PROMQL.tenant_memory, source: t("part.analysis") })}
        />
        <Figure
          title={t("col.request")}
          value={bytes(row.memory_allocated)}
          note={row.cores_allocated === null ? "" : t("workload.cores", { n: number(row.cores_allocated) })}
          about={definition(t("about.request"), { promql: PROMQL.tenant_request, source: t("part.cluster") })}
          stale={!hasCluster}
        />
        <Figure
          title={t("figure.waste")}
          value={number(row.idle_gpu_hours, 1)}
          note={row.held_gpu_hours === null ? "" : t("namespace.held", { all: number(row.held_gpu_hours, 1) })}
          about={definition(t("about.waste"), { source: t("part.history") })}
        />
        <Figure
          title={t("figure.pending")}
          value={
            <Link to="scheduling" query={{ "f.namespace": name }}>
              {number(row.pending_pods)}
            </Link>
          }
          about={definition(t("about.pending"), { promql: PROMQL.pending, source: t("part.cluster") })}
          stale={!hasCluster}
        />
      </div>
      <Panel title={t("nav.workloads")} note={number(data.workloads.length)}>
        <WorkloadTable
          rows={data.workloads}
          name="namespace-workloads"
          parts={data.parts}
          plain
          without={["namespace"]}
        />
      </Panel>
      <Panel title={t("nav.gpus")} note={number(data.gpus.length)}>
        <GpuTable rows={data.gpus} name="namespace-gpus" parts={data.parts} plain />
      </Panel>
      <div class="columns">
        <Trends query={{ namespace: [name] }} />
        <div class="half">
          <Course query={{ namespace: name }} />
        </div>
        <div class="half">
          <Panel title={t("namespace.quotas")} stale={!hasCluster}>
            <Quotas data={data} />
          </Panel>
        </div>
      </div>
    </div>
  );
}

function Quotas({ data }: { data: NamespaceDetail }) {
  const { quotas } = data.namespace;
  if (quotas.length === 0) return <div class="empty small">{t("empty.quotas")}</div>;
  return (
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.resource")}</th>
            <th scope="col" class="num">
              {t("col.used")}
            </th>
            <th scope="col" class="num">
              {t("col.limit")}
            </th>
            <th scope="col" class="num">
              {t("col.share")}
            </th>
          </tr>
        </thead>
        <tbody>
          {quotas.map((one) => (
            <tr key={one.resource}>
              <th scope="row" class="mono">
                {one.resource}
              </th>
              <td class="num">{number(one.used)}</td>
              <td class="num">{one.limit === null ? t("quota.none") : number(one.limit)}</td>
              <td class="num">
                <Meter value={one.ratio} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
