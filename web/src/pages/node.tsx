/** One node: its GPUs, its pods, what still fits, its agent, and contradictions. */
import { useApi } from "../api/client";
import type { FreeCapacity, NodeDetail, Timeline } from "../api/shapes";
import { NodeBesidePanel } from "../parts/beside";
import { ClassBar } from "../parts/classbar";
import { EventList } from "../parts/eventlist";
import { Num, NumHead, Said, Value } from "../parts/figures";
import { bytes, duration, number, percent, shortModel, watts } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes } from "../parts/partnote";
import { Copy, Empty, Facts, Figure, Link, type Origin, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { findingText } from "../parts/sentences";
import { Subject } from "../parts/subject";
import { Trends } from "../parts/trend";
import { scope } from "../state/scope";
import { named } from "../state/vocabulary";
import { t, word } from "../words";
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
                  <Said text="nodes.instances" numbers={{ n: ["node.mig_instances", number(node.mig_instances)] }} />
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
        <Figure
          title={t("col.allocated")}
          figure="node.memory_allocated"
          value={bytes(node.memory_allocated)}
          note={
            node.memory_capacity === null ? (
              t("gpu.unregistered")
            ) : (
              <Said text="of" numbers={{ all: ["node.memory_capacity", bytes(node.memory_capacity)] }} />
            )
          }
          origin={say(PROMQL.node_allocated, "cluster")}
          stale={!hasCluster}
        />
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
              <Said text="node.whole" numbers={{ n: ["capacity.whole_gpus", number(node.whole_gpus)] }} />
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
      <Panel title={t("nav.gpus")} note={<Value figure="list.rows">{number(data.gpus.length)}</Value>}>
        <GpuTable rows={data.gpus} name="node-gpus" parts={data.parts} plain without={["node"]} />
      </Panel>
      <Panel title={t("nav.workloads")} note={<Value figure="list.rows">{number(data.workloads.length)}</Value>}>
        <WorkloadTable rows={data.workloads} name="node-workloads" parts={data.parts} plain without={["nodes"]} />
      </Panel>
      <div class="columns">
        <Trends query={{ node: node.name, namespace: scope.value }} memory={node.memory_total} />
        <Panel title={t("node.fits")} stale={!hasCluster}>
          <Fits types={data.types} />
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
            <Findings data={data} />
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

/** What still fits, by type of GPU. */
export function Fits({ types }: { types: readonly FreeCapacity[] }) {
  if (types.length === 0) return <div class="empty small">{t("empty.fits")}</div>;
  return (
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.model")}</th>
            <th scope="col" class="num" title={t("about.free")}>
              {t("col.free")}
            </th>
            <th scope="col" class="num" title={t("about.largest")}>
              {t("col.largest_short")}
            </th>
            <th scope="col" class="num" title={t("about.whole")}>
              {t("col.whole")}
            </th>
            <th scope="col" class="num" title={t("about.fragmentation")}>
              {t("col.fragmentation")}
            </th>
            <th scope="col" class="num" title={t("about.stranded")}>
              {t("col.stranded")}
            </th>
          </tr>
        </thead>
        <tbody>
          {types.map((one) => (
            <tr key={`${one.vendor}${one.type}`}>
              <th scope="row">{one.type ? shortModel(one.type) : t("value.all")}</th>
              <td class="num">{bytes(one.free.memory)}</td>
              <td class="num">{bytes(one.largest_memory)}</td>
              <td class="num">{number(one.whole_gpus)}</td>
              <td class="num">{percent(one.fragmentation)}</td>
              <td class="num">{bytes(one.stranded.memory)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
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
