/** One node: its GPUs, its pods, what still fits, its agent, and contradictions. */
import { useApi } from "../api/client";
import type { CountedCapacity, FreeCapacity, NodeDetail, Timeline } from "../api/shapes";
import { NodeBesidePanel } from "../parts/beside";
import { ClassBar } from "../parts/classbar";
import { EventList } from "../parts/eventlist";
import { Num, NumHead, Said, Value } from "../parts/figures";
import { bytes, duration, number, percent, shortModel, watts } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { ClusterNeeded, current, known, PartNotes } from "../parts/partnote";
import { Copy, Empty, Facts, Figure, Link, type Origin, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { findingText, kindsOf } from "../parts/sentences";
import { Subject } from "../parts/subject";
import { Trends } from "../parts/trend";
import { scope } from "../state/scope";
import { named } from "../state/vocabulary";
import { type Key, t, word } from "../words";
import { GpuTable } from "./gpus";
import { AgentState, NodeState } from "./nodes";
import { WorkloadTable } from "./workloads";

export function NodePage({ names }: { names: string[] }) {
  const name = names[0]!;
  const found = useApi<NodeDetail>(`/api/v1/nodes/${encodeURIComponent(name)}`, { namespace: scope.value });
  return (
    <>
      <PageHead
        title={
          <>
            {name} <Copy text={name} />
          </>
        }
        back={["nodes", "nav.nodes"]}
      />
      <Shown of={found} rows={12}>
        {(data) => <Node data={data} />}
      </Shown>
    </>
  );
}

function Node({ data }: { data: NodeDetail }) {
  const { node } = data;
  const hasCluster = current(data.parts, "cluster");
  const hasLedger = known(data.parts, "cluster");
  const say = (promql: string, source: "analysis" | "cluster" | "agents"): Origin => ({
    promql,
    source: t(`part.${source}`),
  });
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <div class="tags">
        <NodeState row={node} />
        <span class="muted">{t("node.agent")}</span>
        <AgentState row={node} />
        {node.models.map((one) => (
          <Tag key={one}>{shortModel(one)}</Tag>
        ))}
        <ClassBar figure="node.by_class" counts={node.by_class} />
      </div>
      <div class="figures six">
        <Figure
          title={t("col.gpus")}
          figure="node.gpus"
          value={number(node.gpus)}
          note={
            <>
              {node.mig_instances > 0 && (
                <>
                  <Said text="node.instances" numbers={{ n: ["node.mig_instances", number(node.mig_instances)] }} />
                  {" · "}
                </>
              )}
              {node.gpus_unlisted > 0 && (
                <>
                  <Said text="nodes.unlisted" numbers={{ n: ["node.gpus_unlisted", number(node.gpus_unlisted)] }} />
                  {" · "}
                </>
              )}
              <Said text="node.pods" numbers={{ n: ["node.pods", number(node.pods)] }} />
            </>
          }
          origin={{ source: t("part.analysis") }}
        />
        {node.memory_capacity === null && node.counted.length > 0 ? (
          <Figure
            title={t("col.allocated")}
            figure="node.counted_memory_requested"
            value={bytes(node.counted_memory_requested)}
            note={node.counted.map((one, place) => (
              <span key={countedKey(one)}>
                {place > 0 && " + "}
                {one.mode === "whole" ? "GPU" : (one.profile ?? one.resource)}
                {t("join")}
                <Requested of={one} />
              </span>
            ))}
            origin={say(PROMQL.counted_requested, "cluster")}
            stale={!hasCluster}
          />
        ) : (
          <Figure
            title={t("col.allocated")}
            figure="node.memory_allocated"
            value={bytes(node.memory_allocated)}
            note={
              node.memory_capacity === null ? (
                t(hasLedger ? "gpu.unregistered" : "part.cluster_needed")
              ) : (
                <>
                  <Said text="of" numbers={{ all: ["node.memory_capacity", bytes(node.memory_capacity)] }} />
                  {data.types.some((one) => Object.keys(one.lost).length > 0) && ` · ${t("node.out_of_service")}`}
                </>
              )
            }
            origin={say(PROMQL.node_allocated, "cluster")}
            stale={!hasCluster}
          />
        )}
        <Figure
          title={t("col.memory_used")}
          figure="node.memory_used"
          value={bytes(node.memory_used)}
          note={<Said text="of" numbers={{ all: ["node.memory_total", bytes(node.memory_total)] }} />}
          origin={say(PROMQL.node_memory, "analysis")}
        />
        <Figure
          title={t("col.use")}
          figure="node.use"
          value={percent(node.use)}
          origin={say(PROMQL.node_use, "analysis")}
        />
        <Figure
          title={t("col.largest_short")}
          figure="capacity.largest_memory"
          value={bytes(node.largest_memory)}
          note={
            node.whole_gpus !== null && (
              <>
                <Said text="node.whole" numbers={{ n: ["capacity.whole_gpus", number(node.whole_gpus)] }} />
                <OtherUnits counted={node.counted} />
              </>
            )
          }
          origin={say(PROMQL.node_largest, "cluster")}
          stale={!hasCluster}
        />
        <Figure
          title={t("col.power")}
          figure="node.power"
          value={watts(node.power)}
          origin={say(PROMQL.node_power, "agents")}
        />
      </div>
      <NodeBesidePanel beside={data.beside} />
      <Panel title={kindsOf(data.gpus)} note={<Value figure="list.rows">{number(data.gpus.length)}</Value>}>
        <GpuTable rows={data.gpus} name="node-gpus" parts={data.parts} plain without={["node"]} />
      </Panel>
      <Panel title={t("nav.workloads")} note={<Value figure="list.rows">{number(data.workloads.length)}</Value>}>
        <WorkloadTable rows={data.workloads} name="node-workloads" parts={data.parts} plain without={["nodes"]} />
      </Panel>
      <div class="columns">
        <Trends query={{ node: node.name, namespace: scope.value }} memory={node.memory_total} />
        <Panel title={t("node.fits")} stale={!hasCluster}>
          {hasLedger ? <Fits types={data.types} counted={node.counted} /> : <ClusterNeeded />}
        </Panel>
        <div class="half">
          <Panel title={t("node.agent")} stale={!current(data.parts, "agents")}>
            <Agent data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel
            title={t("node.findings")}
            note={<Value figure="capacity.findings">{number(node.findings)}</Value>}
            stale={!hasCluster}
          >
            {hasLedger ? <Findings data={data} /> : <ClusterNeeded />}
          </Panel>
        </div>
        <Panel
          title={t("gpu.events")}
          actions={
            <Link to="events" query={{ "f.node": node.name }}>
              {t("see_all")}
            </Link>
          }
        >
          <NodeEvents name={node.name} />
        </Panel>
      </div>
    </div>
  );
}

/** What still fits, by type of GPU: registered with HAMi, or only counted by kubelets. */
export function Fits({ types, counted }: { types: readonly FreeCapacity[]; counted: readonly CountedCapacity[] }) {
  if (types.length + counted.length === 0) return <div class="empty small">{t("empty.fits")}</div>;
  return (
    <>
      <Scroll name="fits" rows={types.length + counted.length}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.model")}</th>
              <NumHead title="col.allocated_usable" figure="capacity.memory_allocated" />
              <NumHead title="col.free" figure="capacity.memory_free" />
              <NumHead title="col.largest_short" figure="capacity.largest_memory" />
              <NumHead title="col.whole" figure="capacity.whole_gpus" />
              <NumHead title="col.fragmentation" figure="capacity.fragmentation" />
              <NumHead title="col.stranded" figure="capacity.memory_stranded" />
            </tr>
          </thead>
          <tbody>
            {types.map((one) => (
              <tr key={`${one.vendor}${one.type}`} data-key={one.type}>
                <th scope="row">
                  {one.type ? shortModel(one.type) : t("value.all")} <small class="muted">HAMi</small>
                </th>
                <Num figure="capacity.memory_allocated">{bytes(one.allocated.memory)}</Num>
                <Num figure="capacity.memory_free">{bytes(one.free.memory)}</Num>
                <Num figure="capacity.largest_memory">{bytes(one.largest_memory)}</Num>
                <Num figure="capacity.whole_gpus">{number(one.whole_gpus)}</Num>
                <Num figure="capacity.fragmentation">{percent(one.fragmentation)}</Num>
                <Num figure="capacity.memory_stranded">{bytes(one.stranded.memory)}</Num>
              </tr>
            ))}
            {counted.map((one) => (
              <tr key={`${one.resource}${one.type}${one.profile}`} data-key={countedKey(one)}>
                <th scope="row">
                  {one.type ? shortModel(one.type) : one.resource} <small class="muted">{t(`offer.${one.mode}`)}</small>
                </th>
                <td class="num">
                  <Requested of={one} />
                </td>
                <Num figure="capacity.counted_memory_free" title={whyUnknown(one)}>
                  {bytes(one.memory_free)}
                </Num>
                <Num figure="resource.largest_memory" title={whyUnknown(one)}>
                  {bytes(one.memory_free === null ? null : one.free ? one.memory : 0)}
                </Num>
                <td class="num">
                  <Units of={one} />
                </td>
                <td class="num" title={t("fits.counted")}>
                  –
                </td>
                <td class="num" title={t("fits.counted")}>
                  –
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {types.map((one) => (
        <Parts key={`${one.vendor}${one.type}`} of={one} />
      ))}
      {counted.length > 0 && <p class="muted small">{t("fits.counted")}</p>}
      {[...new Set(counted.map(whyUnknown))].map(
        (why) =>
          why && (
            <p key={why} class="muted small">
              {why}
            </p>
          ),
      )}
    </>
  );
}

/** How the registered memory adds up: allocated, free, of use to no request, or closed to new requests. */
function Parts({ of }: { of: FreeCapacity }) {
  const key = of.type ?? "";
  const lost = Object.entries(of.lost).map(([reason, one]) => {
    const subject = [of.type, reason].filter(Boolean).join("/");
    return [`lost.${reason}` as Key, "capacity.memory_lost", one.memory, subject] as const;
  });
  const parts = [
    ["fits.allocated", "capacity.memory_allocated", of.allocated.memory, key] as const,
    ["fits.free", "capacity.memory_free", of.free.memory, key] as const,
    ["fits.mig_only", "capacity.memory_mig_only", of.mig.memory, key] as const,
    ["fits.stranded", "capacity.memory_stranded", of.stranded.memory, key] as const,
    ...lost,
  ];
  return (
    <p class="muted small">
      {of.type ? shortModel(of.type) : t("value.all")}
      {t("join")}
      <Said text="fits.all" numbers={{ n: ["capacity.memory_registered", bytes(of.total.memory), key] }} />
      {parts
        .filter(([text, , memory]) => memory > 0 || text === "fits.free")
        .map(([text, figure, memory, subject], place) => (
          <span key={text}>
            {place === 0 ? " = " : " + "}
            <Said text={text} numbers={{ n: [figure, bytes(memory), subject] }} />
          </span>
        ))}
      {of.over.memory > 0 && (
        <>
          {" − "}
          <Said text="fits.over" numbers={{ n: ["capacity.memory_over_committed", bytes(of.over.memory), key] }} />
        </>
      )}
    </p>
  );
}

/** A resource can be of several models and MIG profiles. */
const countedKey = (one: CountedCapacity): string =>
  [one.type, one.resource, one.profile].filter((part) => part !== null).join("/");

/** Why the free memory of a counted resource is not known. */
function whyUnknown(one: CountedCapacity): string | undefined {
  if (one.memory_free !== null) return undefined;
  return t(one.mode === "whole" || one.mode === "mig" ? "fits.no_label" : "fits.no_memory");
}

/** How much of a counted resource a pod can still get, in the unit of the resource: GPUs, MIG instances or shares. */
export function Units({ of }: { of: CountedCapacity }) {
  if (of.mode === "whole") {
    return (
      <Value figure="resource.whole_gpus" of={countedKey(of)}>
        {number(of.whole_gpus)}
      </Value>
    );
  }
  if (of.mode === "mig") {
    return (
      <Said
        text="fits.instances"
        numbers={{ n: ["capacity.counted_free", number(of.free), countedKey(of)] }}
        values={{ profile: of.profile ?? "MIG" }}
      />
    );
  }
  return (
    <Said
      text="fits.shares"
      numbers={{
        n: ["capacity.counted_free", number(of.free), countedKey(of)],
        all: ["capacity.counted", number(of.capacity), countedKey(of)],
      }}
    />
  );
}

/** How much of a counted resource pods have: its units, and their memory if that is known. */
function Requested({ of }: { of: CountedCapacity }) {
  const key = countedKey(of);
  return (
    <>
      <Said
        text="fits.requested"
        numbers={{
          n: ["capacity.counted_requested", number(of.requested), key],
          all: ["capacity.counted", number(of.capacity), key],
        }}
      />
      {of.memory_requested !== null && (
        <>
          {" · "}
          <Value figure="capacity.counted_memory_requested" of={key}>
            {bytes(of.memory_requested)}
          </Value>
        </>
      )}
    </>
  );
}

/** What else a pod can get of a node besides whole GPUs: MIG instances and shares. */
export function OtherUnits({ counted }: { counted: readonly CountedCapacity[] }) {
  const others = counted.filter((one) => one.mode !== "whole" && one.free > 0);
  return (
    <>
      {others.map((one) => (
        <span key={one.resource}>
          {" + "}
          <Units of={one} />
        </span>
      ))}
    </>
  );
}

function Agent({ data }: { data: NodeDetail }) {
  const { agent } = data.node;
  if (agent.up === null) {
    return (
      <Empty
        title={t("empty.agent")}
        why={t("empty.agent_why")}
        command={`kubectl get pods -A -o wide --field-selector spec.nodeName=${data.node.name}`}
        doctor
      />
    );
  }
  return (
    <>
      <Facts
        rows={[
          ["fact.target", agent.target],
          ["fact.version", agent.version],
          ["fact.reason", agent.reason],
        ]}
      />
      {agent.sources.length > 0 && (
        <Scroll name="sources" rows={agent.sources.length}>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.source")}</th>
                <th scope="col">{t("col.state")}</th>
                <NumHead title="col.age" figure="source.age" />
              </tr>
            </thead>
            <tbody>
              {agent.sources.map((one) => (
                <tr key={one.source} data-key={one.source}>
                  <th scope="row">{word(`node_source.${one.source}`, one.source)}</th>
                  <td>
                    {one.absent ? (
                      <Tag>{t("source.absent")}</Tag>
                    ) : (
                      <Tag tone={one.up ? "good" : "bad"}>
                        {one.up ? t("source.up") : one.code ? named("error", one.code) : t("source.down")}
                      </Tag>
                    )}
                  </td>
                  <Num figure="source.age">{duration(one.age_seconds)}</Num>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

function Findings({ data }: { data: NodeDetail }) {
  if (data.findings.length === 0) return <div class="empty small">{t("empty.findings")}</div>;
  return (
    <ul class="attention">
      {data.findings.map((one) => (
        <li key={`${one.kind}${one.reason}${one.device}${one.pod_uid}${one.resource}`}>
          <Tag tone="warn">{named("finding", one.kind)}</Tag>
          <span class="what">
            {findingText(one.kind, one.reason)}{" "}
            <span class="about-what">
              <Subject
                row={{ namespace: one.namespace || null, pod: one.pod || null, gpu_id: one.device || null, node: null }}
              />
            </span>
            {one.claimed_gpus !== null && (
              <span class="muted">
                {" "}
                {t("finding.claims", {
                  n: one.claimed_gpus,
                  size: bytes(one.claimed_memory),
                  writer: one.writer || t("finding.nobody"),
                })}
              </span>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}

function NodeEvents({ name }: { name: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { node: name, namespace: scope.value, limit: 10 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} node={false} />}
    </Shown>
  );
}
