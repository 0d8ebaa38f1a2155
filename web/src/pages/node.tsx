/** One node: its GPUs, its pods, what still fits, its agent, and contradictions. */
import { useApi } from "../api/client";
import type { FreeCapacity, NodeDetail, Timeline } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { EventList } from "../parts/eventlist";
import { bytes, duration, number, percent, watts } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Copy, definition, Facts, Figure, Link, Panel, Shown, Tag } from "../parts/pieces";
import { scope } from "../state/scope";
import { pathOf } from "../state/url";
import { t, word } from "../words";
import { Trend } from "./gpu";
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
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
      <div class="tags">
        <NodeState row={node} />
        <AgentState row={node} />
        {node.models.map((one) => (
          <Tag key={one}>{one}</Tag>
        ))}
        <ClassBar counts={node.by_class} />
      </div>
      <div class="figures">
        <Figure title={t("col.gpus")} value={number(node.gpus)} note={t("node.pods", { n: number(node.pods) })} />
        <Figure
          title={t("col.allocated")}
          value={bytes(node.memory_allocated)}
          note={t("of", { all: bytes(node.memory_capacity) })}
          about={definition(t("about.allocated_node"))}
        />
        <Figure
          title={t("col.memory_used")}
          value={bytes(node.memory_used)}
          note={t("of", { all: bytes(node.memory_total) })}
          about={definition(t("about.memory"))}
        />
        <Figure title={t("col.use")} value={percent(node.use)} about={definition(t("about.use_node"))} />
        <Figure
          title={t("col.largest")}
          value={bytes(node.largest_memory)}
          note={t("node.whole", { n: number(node.whole_gpus) })}
          about={definition(t("about.largest"))}
        />
        <Figure title={t("col.power")} value={watts(node.power)} />
      </div>
      <Panel title={t("nav.gpus")}>
        <GpuTable rows={data.gpus} name="node-gpus" plain />
      </Panel>
      <Panel title={t("nav.workloads")}>
        <WorkloadTable rows={data.workloads} name="node-workloads" plain />
      </Panel>
      <div class="columns">
        <div class="half">
          <Trend title={t("gpu.use")} query={{ node: node.name }} quantities={["use", "use_max"]} />
        </div>
        <div class="half">
          <Trend title={t("gpu.memory")} query={{ node: node.name }} quantities={["memory_used"]} />
        </div>
        <div class="half">
          <Panel title={t("node.fits")}>
            <Fits types={data.types} data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("node.agent")}>
            <Agent data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("node.findings", { n: number(node.findings) })}>
            <Findings data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("gpu.events")}>
            <NodeEvents name={node.name} />
          </Panel>
        </div>
      </div>
    </div>
  );
}

/** What still fits, by type of GPU. */
export function Fits({ types, data }: { types: readonly FreeCapacity[]; data: { parts: NodeDetail["parts"] } }) {
  if (types.length === 0)
    return (
      <>
        <PartNotes parts={data.parts} names={["cluster"]} />
        <div class="empty small">{t("empty.fits")}</div>
      </>
    );
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.model")}</th>
            <th scope="col" class="num">
              {t("col.free")}
            </th>
            <th scope="col" class="num">
              {t("col.largest")}
            </th>
            <th scope="col" class="num">
              {t("col.whole")}
            </th>
            <th scope="col" class="num">
              {t("col.fragmentation")}
            </th>
            <th scope="col" class="num">
              {t("col.stranded")}
            </th>
          </tr>
        </thead>
        <tbody>
          {types.map((one) => (
            <tr key={`${one.vendor}${one.type}`}>
              <th scope="row">{one.type ?? t("value.all")}</th>
              <td class="num">{bytes(one.free.memory)}</td>
              <td class="num">{bytes(one.largest_memory)}</td>
              <td class="num">{number(one.whole_gpus)}</td>
              <td class="num">{percent(one.fragmentation)}</td>
              <td class="num">{bytes(one.stranded.memory)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Agent({ data }: { data: NodeDetail }) {
  const { agent } = data.node;
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
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.source")}</th>
                <th scope="col">{t("col.state")}</th>
                <th scope="col" class="num">
                  {t("col.age")}
                </th>
              </tr>
            </thead>
            <tbody>
              {agent.sources.map((one) => (
                <tr key={one.source}>
                  <th scope="row">{one.source}</th>
                  <td>
                    {one.absent ? (
                      <Tag>{t("source.absent")}</Tag>
                    ) : (
                      <Tag tone={one.up ? "good" : "bad"}>
                        {one.up ? t("source.up") : (one.code ?? t("source.down"))}
                      </Tag>
                    )}
                  </td>
                  <td class="num">{duration(one.age_seconds)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Findings({ data }: { data: NodeDetail }) {
  if (data.findings.length === 0)
    return (
      <>
        <PartNotes parts={data.parts} names={["cluster"]} />
        <div class="empty small">{t("empty.findings")}</div>
      </>
    );
  return (
    <ul class="attention">
      {data.findings.map((one, place) => (
        <li key={`${one.kind}${one.device}${one.pod_uid}${place}`}>
          <Tag tone="warn">{word(`finding.${one.kind}`, one.kind)}</Tag>
          <span class="what">
            {one.namespace && one.pod && (
              <Link to={pathOf("workloads", one.namespace, one.pod)}>
                {one.namespace}/{one.pod}
              </Link>
            )}{" "}
            <span class="mono">{one.device}</span>{" "}
            <span class="muted">{word(`finding_reason.${one.reason}`, one.reason)}</span>
          </span>
        </li>
      ))}
    </ul>
  );
}

function NodeEvents({ name }: { name: string }) {
  const found = useApi<Timeline>("/api/v1/timeline", { node: name, limit: 20 });
  return (
    <Shown of={found} rows={4}>
      {(data) => <EventList events={data.rows} />}
    </Shown>
  );
}
