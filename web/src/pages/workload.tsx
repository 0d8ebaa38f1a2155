/** One pod: what it asked for, how near its limits it is, whether it works, and why we think so. */
import { useApi } from "../api/client";
import type { GpuDetail, TenantRow, Timeline, WorkloadDetail } from "../api/shapes";
import { certainty, PodBesidePanel, ProcessesPanel } from "../parts/beside";
import { ClassBar } from "../parts/classbar";
import { EventList } from "../parts/eventlist";
import { Said, Value } from "../parts/figures";
import { bytes, number, percent, watts } from "../parts/format";
import { OpinionBox, opinionOf } from "../parts/opinion";
import { realOwner } from "../parts/owner";
import { current, PartNotes, part } from "../parts/partnote";
import { About, Age, ClassBadge, Facts, Figure, Link, Meter, type Origin, Panel, Shown, Tag } from "../parts/pieces";
import { PodPage, Sentences } from "../parts/podpage";
import { PROMQL } from "../parts/promql";
import { Trends } from "../parts/trend";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { pathOf } from "../state/url";
import { t, word } from "../words";
import { Highest, Questions, ScoreOf } from "./gpu";
import { GpuLink } from "./gpus";
import { PendingFacts } from "./pending";

export function WorkloadPage({ names }: { names: string[] }) {
  const [namespace = "", pod = ""] = names;
  const past = (
    <div class="columns">
      <Trends query={{ namespace, pod }} />
    </div>
  );
  return (
    <PodPage<WorkloadDetail> names={names} list="workloads" past={past}>
      {(data) => <Workload data={data} />}
    </PodPage>
  );
}

function Workload({ data }: { data: WorkloadDetail }) {
  const { workload } = data;
  const say = (promql: string, source: "analysis" | "cluster" | "agents"): Origin => ({
    promql,
    source: t(`part.${source}`),
    at: part(data.parts, source)?.at,
  });
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <div class="tags">
        {workload.use_class ? (
          <ClassBadge name={workload.use_class} />
        ) : (
          <ClassBar figure="workload.by_class" counts={workload.by_class} />
        )}
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
          title={t("col.gpu_time")}
          figure="workload.use"
          value={percent(workload.use.mean)}
          note={<Highest of="workload.use" use={workload.use} />}
          origin={say(PROMQL.tenant_use, "analysis")}
        />
        <Figure
          title={t("col.memory")}
          figure="workload.memory_used"
          value={bytes(workload.memory_used)}
          note={<Nearest of={workload} />}
          origin={say(PROMQL.tenant_memory, "agents")}
        />
        <Figure
          title={t("col.request")}
          figure="workload.memory_allocated"
          value={bytes(workload.memory_allocated)}
          note={
            workload.cores_allocated !== null && (
              <Said
                text="workload.cores"
                numbers={{ n: ["workload.cores_allocated", number(workload.cores_allocated)] }}
              />
            )
          }
          origin={say(PROMQL.tenant_request, "cluster")}
          stale={!current(data.parts, "cluster")}
        />
        <Figure
          title={t("col.limit")}
          figure="workload.memory_limit"
          value={bytes(workload.memory_limit)}
          note={
            workload.cores_limit !== null && (
              <Said text="workload.cores" numbers={{ n: ["workload.cores_limit", number(workload.cores_limit)] }} />
            )
          }
          origin={say(PROMQL.tenant_limit, "agents")}
        />
        <Figure
          title={t("col.last_kernel")}
          figure="tenant.last_kernel"
          value={<Age at={workload.last_kernel} ago />}
          note={workload.priority === null ? "" : t(workload.priority === 0 ? "workload.high" : "workload.low")}
          origin={say(PROMQL.last_kernel, "agents")}
        />
        <Figure
          title={t("col.idle_for")}
          figure="tenant.idle_seconds"
          value={workload.idle_since ? <Age at={workload.idle_since} /> : "–"}
          note={t("verdict_is", { verdict: t(`verdict.${workload.verdict}`) })}
          origin={say(PROMQL.tenant_idle, "analysis")}
        />
      </div>
      {workload.state === "running" && <PodBesidePanel beside={data.beside} />}
      {data.gpus.map((one) => (
        <Panel
          key={`${one.gpu_id}${one.mig}${one.detail.tenant.container}`}
          of={[one.gpu_id, one.mig, one.detail.tenant.pod_uid, one.detail.tenant.container].join("/")}
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
          <Neighbours gpu_id={one.gpu_id} mig={one.mig} own={one.detail.tenant} />
          <div class="columns">
            <div class="half">
              <h3>{t("gpu.why", { verdict: t(`verdict.${one.detail.tenant.verdict}`) })}</h3>
              <Sentences lines={one.detail.why} />
              <Questions />
              <OpinionBox opinion={opinionOf(one.detail)} />
            </div>
            <div class="half">
              <Facts
                rows={[
                  ["col.gpu_time", <Meter key="use" value={one.detail.tenant.use.mean} />, undefined, "tenant.use"],
                  ["col.p95", percent(one.detail.tenant.use.p95), undefined, "tenant.use_p95"],
                  ["col.max", percent(one.detail.tenant.use.max), undefined, "tenant.use_max"],
                  ["certainty.sm", sure(data, one, "sm"), t("about.certainty")],
                  ["col.memory", bytes(one.detail.tenant.memory_used), undefined, "tenant.memory_used"],
                  ["certainty.memory", sure(data, one, "memory"), t("about.certainty")],
                  ["col.limit", bytes(one.detail.tenant.memory_limit), undefined, "tenant.memory_limit"],
                  [
                    "col.cores_limit",
                    one.detail.tenant.cores_limit === null ? null : `${number(one.detail.tenant.cores_limit)} %`,
                    undefined,
                    "tenant.cores_limit",
                  ],
                  ["col.power", watts(one.detail.tenant.power), undefined, "tenant.power"],
                  [
                    "fact.kernels",
                    one.detail.tenant.state
                      ? word(`container_state.${one.detail.tenant.state}`, one.detail.tenant.state)
                      : null,
                  ],
                  ["col.confidence", percent(one.detail.tenant.confidence), undefined, "tenant.confidence"],
                  ["col.score", <ScoreOf key="score" of={one.detail.tenant} figure="tenant.score" />, t("about.score")],
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

interface NeighboursProps {
  readonly gpu_id: string;
  readonly mig: string | null;
  readonly own: TenantRow;
}

/** Who else is on the same GPU or MIG instance, and what each of them does there. */
function Neighbours({ gpu_id, mig, own }: NeighboursProps) {
  const query = { mig, namespace: scope.value, lang: language.value };
  const found = useApi<GpuDetail>(`/api/v1/gpus/${encodeURIComponent(gpu_id)}`, query);
  const others = found.data?.tenants
    .map((one) => one.tenant)
    .filter((one) => one.pod_uid !== own.pod_uid || one.container !== own.container);
  const hidden = found.data?.gpu.others?.tenants ?? 0; // of namespaces that the caller may not see
  if (!others?.length && !hidden) return null;
  return (
    <div class="neighbours">
      <h3>{t("workload.neighbours")}</h3>
      <ul>
        {others?.map((one) => (
          <li key={`${one.pod_uid}${one.container}`} data-key={[gpu_id, mig, one.pod_uid, one.container].join("/")}>
            <ClassBadge name={one.use_class} />{" "}
            <Link to={pathOf("workloads", one.namespace, one.pod)}>
              {one.namespace}/{one.pod}
            </Link>{" "}
            <Value figure="tenant.memory_used">{bytes(one.memory_used)}</Value>
          </li>
        ))}
        {hidden > 0 && (
          <li>
            <Tag>{t("others", { n: hidden })}</Tag>
          </li>
        )}
      </ul>
    </div>
  );
}

/** How sure a figure of one container on one GPU is. */
function sure(data: WorkloadDetail, one: WorkloadDetail["gpus"][number], resource: "memory" | "sm"): string | null {
  return certainty(data.beside, { ...one, container: one.detail.tenant.container }, resource);
}

/** How near the pod came to its limit. */
function Nearest({ of: { memory_max, memory_limit } }: { of: WorkloadDetail["workload"] }) {
  if (memory_max === null || !memory_limit) return null;
  return (
    <Said
      text="workload.nearest"
      numbers={{ share: ["workload.memory_max_share", percent(memory_max / memory_limit)] }}
    />
  );
}

function PodEvents({ namespace, pod }: { namespace: string; pod: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { namespace: [namespace], pod, limit: 10 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} />}
    </Shown>
  );
}
