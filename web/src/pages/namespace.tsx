/** One namespace: its pods and GPUs, its quotas, its course. */
import { useApi } from "../api/client";
import type { NamespaceDetail } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { Course } from "../parts/course";
import { Num, NumHead, Said, Value } from "../parts/figures";
import { bytes, number, percent } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { ClusterNeeded, current, known, PartNotes } from "../parts/partnote";
import { Copy, Figure, Link, Meter, Panel, Scroll, Shown } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { kindsOf } from "../parts/sentences";
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
        <ClassBar figure="namespace.by_class" counts={row.by_class} />
      </div>
      <div class="figures six">
        <Figure
          title={t("col.gpus")}
          figure="namespace.gpus"
          value={number(row.gpus)}
          note={
            <>
              {row.gpus_or_instances !== row.gpus && (
                <>
                  <Said
                    text="namespace.instances"
                    numbers={{ n: ["namespace.gpus_or_instances", number(row.gpus_or_instances)] }}
                  />
                  {" · "}
                </>
              )}
              <Said text="node.pods" numbers={{ n: ["namespace.pods", number(row.pods)] }} />
            </>
          }
          origin={{ source: t("part.analysis") }}
        />
        <Figure
          title={t("col.gpu_time")}
          figure="namespace.use"
          value={percent(row.use)}
          origin={{ promql: PROMQL.tenant_use, source: t("part.analysis") }}
        />
        <Figure
          title={t("col.memory_used")}
          figure="namespace.memory_used"
          value={bytes(row.memory_used)}
          origin={{ promql: PROMQL.tenant_memory, source: t("part.analysis") }}
        />
        <Figure
          title={t("col.request")}
          figure="namespace.memory_allocated"
          value={bytes(row.memory_allocated)}
          note={
            row.cores_allocated !== null && (
              <Said text="workload.cores" numbers={{ n: ["namespace.cores_allocated", number(row.cores_allocated)] }} />
            )
          }
          origin={{ promql: PROMQL.tenant_request, source: t("part.cluster") }}
          stale={!hasCluster}
        />
        <Figure
          title={t("figure.waste")}
          figure="namespace.idle_gpu_hours_day"
          value={number(row.idle_gpu_hours, 1)}
          note={
            row.held_gpu_hours !== null && (
              <Said
                text="namespace.held"
                numbers={{ all: ["namespace.held_gpu_hours_day", number(row.held_gpu_hours, 1)] }}
              />
            )
          }
          about={<span>{t("about.waste")}</span>}
          origin={{ source: t("part.history") }}
        />
        <Figure
          title={t("figure.pending")}
          figure="namespace.pending_pods"
          value={
            <Link to="scheduling" query={{ "f.namespace": name }}>
              {number(row.pending_pods)}
            </Link>
          }
          origin={{ promql: PROMQL.pending, source: t("part.cluster") }}
          stale={!hasCluster}
        />
      </div>
      <Panel title={t("nav.workloads")} note={<Value figure="list.rows">{number(data.workloads.length)}</Value>}>
        <WorkloadTable
          rows={data.workloads}
          name="namespace-workloads"
          parts={data.parts}
          plain
          without={["namespace"]}
        />
      </Panel>
      <Panel title={kindsOf(data.gpus)} note={<Value figure="list.rows">{number(data.gpus.length)}</Value>}>
        <GpuTable rows={data.gpus} name="namespace-gpus" parts={data.parts} plain />
      </Panel>
      <div class="columns">
        <Trends query={{ namespace: [name] }} />
        <div class="half">
          <Course namespace={name} />
        </div>
        <div class="half">
          <Panel title={t("namespace.quotas")} stale={!hasCluster}>
            {known(data.parts, "cluster") ? <Quotas data={data} /> : <ClusterNeeded />}
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
    <Scroll name="quotas" rows={quotas.length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.resource")}</th>
            <NumHead title="col.used" figure="quota.used" />
            <NumHead title="col.limit" figure="quota.limit" />
            <NumHead title="col.share" figure="quota.ratio" />
          </tr>
        </thead>
        <tbody>
          {quotas.map((one) => (
            <tr key={one.resource} data-key={one.resource}>
              <th scope="row" class="mono">
                {one.resource}
              </th>
              <Num figure="quota.used">{number(one.used)}</Num>
              <Num figure="quota.limit">{one.limit === null ? t("quota.none") : number(one.limit)}</Num>
              <Num figure="quota.ratio">
                <Meter value={one.ratio} />
              </Num>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
