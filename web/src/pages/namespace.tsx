/** One namespace: its pods and GPUs, its quotas, its course. */
import { useApi } from "../api/client";
import type { NamespaceDetail } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { bytes, number, percent } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Copy, definition, Figure, Link, Meter, Panel, Shown } from "../parts/pieces";
import { href, pathOf } from "../state/url";
import { t } from "../words";
import { Trend } from "./gpu";
import { GpuTable } from "./gpus";
import { Course } from "./overview";
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
        <Copy text={mine} />
      </PageHead>
      <Shown of={found} rows={12}>
        {(data) => <Namespace data={data} name={name} />}
      </Shown>
    </>
  );
}

function Namespace({ data, name }: { data: NamespaceDetail; name: string }) {
  const row = data.namespace;
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents", "history"]} />
      <div class="tags">
        <ClassBar counts={row.by_class} />
      </div>
      <div class="figures">
        <Figure title={t("col.gpus")} value={number(row.gpus)} note={t("node.pods", { n: number(row.pods) })} />
        <Figure title={t("col.use")} value={percent(row.use)} about={definition(t("about.use_namespace"))} />
        <Figure
          title={t("col.memory_used")}
          value={bytes(row.memory_used)}
          note={t("of", { all: bytes(row.memory_allocated) })}
        />
        <Figure
          title={t("figure.waste")}
          value={number(row.idle_gpu_hours, 1)}
          note={t("of", { all: number(row.held_gpu_hours, 1) })}
          about={definition(t("about.waste"))}
        />
        <Figure
          title={t("figure.pending")}
          value={
            <Link to="scheduling" query={{ "f.namespace": name }}>
              {number(row.pending_pods)}
            </Link>
          }
        />
      </div>
      <Panel title={t("namespace.quotas")}>
        <Quotas data={data} />
      </Panel>
      <Panel title={t("nav.workloads")}>
        <WorkloadTable rows={data.workloads} name="namespace-workloads" plain />
      </Panel>
      <Panel title={t("nav.gpus")}>
        <GpuTable rows={data.gpus} name="namespace-gpus" plain />
      </Panel>
      <div class="columns">
        <div class="half">
          <Panel title={t("namespace.course")}>
            <Course query={{ namespace: name }} />
          </Panel>
        </div>
        <div class="half">
          <Trend title={t("gpu.use")} query={{ namespace: [name] }} quantities={["use", "use_max"]} />
        </div>
      </div>
    </div>
  );
}

function Quotas({ data }: { data: NamespaceDetail }) {
  const { quotas, name } = data.namespace;
  if (quotas.length === 0)
    return (
      <>
        <PartNotes parts={data.parts} names={["cluster"]} />
        <div class="empty small">
          {t("empty.quotas")} <Link to={pathOf("namespaces", name)}>{""}</Link>
        </div>
      </>
    );
  return (
    <div class="scroll">
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
    </div>
  );
}
