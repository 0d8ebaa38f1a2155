/** One pod: what it asked for, how near its limits it is, whether it works, and why we think so. */
import { useApi } from "../api/client";
import type { Timeline, WorkloadDetail } from "../api/shapes";
import { certainty, PodBesidePanel, ProcessesPanel } from "../parts/beside";
import { ClassBar } from "../parts/classbar";
import { EventList } from "../parts/eventlist";
import { bytes, number, percent, watts } from "../parts/format";
import { OpinionBox, opinionOf } from "../parts/opinion";
import { realOwner } from "../parts/owner";
import { current, PartNotes, part } from "../parts/partnote";
import { About, Age, ClassBadge, definition, Facts, Figure, Link, Meter, Panel, Shown, Tag } from "../parts/pieces";
import { PodPage, Sentences } from "../parts/podpage";
import { PROMQL } from "../parts/promql";
import { Trends } from "../parts/trend";
import { pathOf } from "../state/url";
import { t, word } from "../words";
import { highest } from "./gpu";
import { GpuLink } from "./gpus";
import { PendingFacts } from "./pending";

export function WorkloadPage({ names }: { names: string[] }) {
  return (
    <PodPage<WorkloadDetail> names={names} list="workloads">
      {(data) => <Workload data={data} />}
    </PodPage>
  );
}

function Workload({ data }: { data: WorkloadDetail }) {
  const { workload } = data;
  const say = (text: string, promql: string, source: "analysis" | "cluster" | "agents") =>
    definition(text, { promql, source: t(`part.${source}`), at: part(data.parts, source)?.at });
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <div class="tags">
        {workload.use_class ? <ClassBadge name={workload.use_class} /> : <ClassBar counts={workload.by_class} />}
        {workload.state === "pending" && <Tag tone="warn">{t("workload.pending")}</Tag>}
        {workload.blocked && (
          <Tag tone="warn" title={t("workload.blocked_why")}>
            {t("workload.blocked")}
          </Tag>
        )}
        {realOwner(workload.owner) && <Tag>{workload.owner}</Tag>}
        {workload.nodes.map((name) => (
          <Link key={name} to={pathOf("nodes", name)}>
            {name}
          </Link>
        ))}
      </div>
      <div class="figures six">
        <Figure
          title={t("col.use")}
          value={percent(workload.use.mean)}
          note={highest(workload.use)}
          about={say(t("about.use_tenant"), PROMQL.tenant_use, "analysis")}
        />
        <Figure
          title={t("col.memory")}
          value={bytes(workload.memory_used)}
          note={nearest(workload)}
          about={say(t("about.near"), PROMQL.tenant_memory, "agents")}
        />
        <Figure
          title={t("col.request")}
          value={bytes(workload.memory_allocated)}
          note={workload.cores_allocated === null ? "" : t("workload.cores", { n: number(workload.cores_allocated) })}
          about={say(t("about.request"), PROMQL.tenant_request, "cluster")}
          stale={!current(data.parts, "cluster")}
        />
        <Figure
          title={t("col.limit")}
          value={bytes(workload.memory_limit)}
          note={workload.cores_limit === null ? "" : t("workload.cores", { n: number(workload.cores_limit) })}
          about={say(t("about.limit"), PROMQL.tenant_limit, "agents")}
        />
        <Figure
          title={t("col.last_kernel")}
          value={<Age at={workload.last_kernel} ago />}
          note={workload.priority === null ? "" : t(workload.priority === 0 ? "workload.high" : "workload.low")}
          about={say(t("about.last_kernel"), PROMQL.last_kernel, "agents")}
        />
        <Figure
          title={t("col.idle_for")}
          value={workload.idle_since ? <Age at={workload.idle_since} /> : "–"}
          note={t(`verdict.${workload.verdict}`)}
          about={say(t("about.idle_for"), PROMQL.tenant_idle, "analysis")}
        />
      </div>
      {workload.state === "running" && <PodBesidePanel beside={data.beside} />}
      {data.gpus.map((one) => (
        <Panel
          key={`${one.gpu_id}${one.mig}${one.detail.tenant.container}`}
          title={
            <>
              <GpuLink row={{ ...one, profile: null }} /> <span class="muted">{one.detail.tenant.container}</span>
            </>
          }
        >
          <div class="tags">
            <ClassBadge name={one.detail.tenant.use_class} />
            {one.gpu_class !== one.detail.tenant.use_class && (
              <span class="muted">
                {t("workload.gpu_is")} <ClassBadge name={one.gpu_class} />
              </span>
            )}
            {!one.detail.tenant.own_numbers && <About>{t("about.no_own_numbers")}</About>}
          </div>
          <div class="columns">
            <div class="half">
              <h3>{t("gpu.why", { verdict: t(`verdict.${one.detail.tenant.verdict}`) })}</h3>
              <Sentences lines={one.detail.why} />
              <OpinionBox opinion={opinionOf(one.detail)} />
            </div>
            <div class="half">
              <Facts
                rows={[
                  ["col.use", <Meter key="use" value={one.detail.tenant.use.mean} />],
                  ["col.p95", percent(one.detail.tenant.use.p95)],
                  ["col.max", percent(one.detail.tenant.use.max)],
                  ["certainty.sm", sure(data, one, "sm"), t("about.certainty")],
                  ["col.memory", bytes(one.detail.tenant.memory_used)],
                  ["certainty.memory", sure(data, one, "memory"), t("about.certainty")],
                  ["col.limit", bytes(one.detail.tenant.memory_limit)],
                  [
                    "col.cores",
                    one.detail.tenant.cores_limit === null ? null : `${number(one.detail.tenant.cores_limit)} %`,
                  ],
                  ["col.power", watts(one.detail.tenant.power)],
                  [
                    "col.state",
                    one.detail.tenant.state
                      ? word(`container_state.${one.detail.tenant.state}`, one.detail.tenant.state)
                      : null,
                  ],
                  ["col.confidence", percent(one.detail.tenant.confidence)],
                ]}
              />
            </div>
          </div>
        </Panel>
      ))}
      <ProcessesPanel beside={data.beside} />
      <div class="columns">
        <Trends query={{ namespace: [workload.namespace], pod: workload.pod }} memory={workload.memory_limit} />
        {data.scheduling && (
          <div class="half">
            <Panel
              title={t("nav.scheduling")}
              actions={<Link to={pathOf("scheduling", workload.namespace, workload.pod ?? "")}>{t("see_all")}</Link>}
            >
              <PendingFacts row={data.scheduling} />
            </Panel>
          </div>
        )}
        <div class={data.scheduling ? "half" : "whole"}>
          <Panel
            title={t("gpu.events")}
            actions={
              <Link to="events" query={{ q: `${workload.namespace}/${workload.pod}` }}>
                {t("see_all")}
              </Link>
            }
          >
            <PodEvents namespace={workload.namespace} pod={workload.pod ?? ""} />
          </Panel>
        </div>
      </div>
    </div>
  );
}

/** How sure a figure of one container on one GPU is. */
function sure(data: WorkloadDetail, one: WorkloadDetail["gpus"][number], resource: "memory" | "sm"): string | null {
  return certainty(data.beside, { ...one, container: one.detail.tenant.container }, resource);
}

/** How near the pod came to its limit. */
function nearest({ memory_max, memory_limit }: WorkloadDetail["workload"]): string {
  if (memory_max === null || !memory_limit) return "";
  return t("workload.nearest", { share: percent(memory_max / memory_limit) });
}

function PodEvents({ namespace, pod }: { namespace: string; pod: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { namespace: [namespace], pod, limit: 10 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} />}
    </Shown>
  );
}
