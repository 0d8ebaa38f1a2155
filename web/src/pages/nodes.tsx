/** Capacity and placement: every node, with what it offers, what is allocated and what is used. */
import { useApi, withQuery } from "../api/client";
import type { NodeList, NodeRow } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
import { Said, Value } from "../parts/figures";
import { bytes, number, percent, shortModel, watts } from "../parts/format";
import { className } from "../parts/heatmap";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, Empty, Link, Meter, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { t, word } from "../words";
import { OtherUnits } from "./node";

export function NodesPage() {
  const query = { namespace: scope.value, limit: 100_000 };
  const found = useApi<NodeList>("/api/v1/nodes", query);
  return (
    <>
      <PageHead title={t("nav.nodes")} about={t("nodes.about")} />
      <Shown of={found} rows={12}>
        {(data) => (
          <div class="stack tight">
            <PartNotes parts={data.parts} names={["analysis", "cluster", "agents"]} />
            <Table
              name="nodes"
              label={t("nav.nodes")}
              rows={data.rows}
              columns={COLUMNS}
              main={MAIN}
              sort="name"
              rowKey={(row) => row.name}
              parts={data.parts}
              source={withQuery("/api/v1/nodes", query)}
              open={(row) => go(pathOf("nodes", row.name), carried())}
              empty={
                <Empty
                  title={t("empty.nodes")}
                  why={t("empty.nodes_why")}
                  command="kubectl get nodes -L nvidia.com/gpu.present"
                  doctor
                />
              }
            />
          </div>
        )}
      </Shown>
    </>
  );
}

export function stateOf(row: NodeRow): "ready" | "not-ready" | "unschedulable" | "gone" | "unknown" {
  if (row.known === false) return "gone";
  if (row.ready === null) return "unknown";
  if (!row.ready) return "not-ready";
  return row.schedulable === false ? "unschedulable" : "ready";
}

export function NodeState({ row }: { row: NodeRow }) {
  const state = stateOf(row);
  const tone = ({ ready: "good", "not-ready": "bad", unschedulable: "warn", gone: "bad", unknown: "plain" } as const)[
    state
  ];
  return <Tag tone={tone}>{t(`node_state.${state}`)}</Tag>;
}

export function AgentState({ row }: { row: NodeRow }) {
  const { agent } = row;
  if (agent.up === null) return <Tag tone="warn">{t("agent.none")}</Tag>;
  if (!agent.up)
    return (
      <Tag tone="bad" title={agent.reason ?? ""}>
        {agent.last_seen ? t("agent.down") : t("source.down")} {agent.last_seen && <Age at={agent.last_seen} />}
      </Tag>
    );
  const bad = agent.sources.filter((one) => !one.up && !one.absent);
  return bad.length ? (
    <Tag tone="warn" title={bad.map((one) => `${one.source}: ${one.code ?? ""}`).join(", ")}>
      {t("agent.partial")}
    </Tag>
  ) : (
    <Tag tone="good">{t("agent.up")}</Tag>
  );
}

/** An amount of memory with its share of all as a bar, if all is known. */
function Share({ part, all }: { part: number | null; all: number | null }) {
  if (part === null || !all) return <>{bytes(part)}</>;
  return (
    <span title={`${bytes(part)} / ${bytes(all)}, ${percent(part / all)}`}>
      <Meter value={part / all} text={bytes(part)} />
    </span>
  );
}

const classesOf = (row: NodeRow): string[] =>
  Object.entries(row.by_class).flatMap(([name, count]) => (count ? [name] : []));

const MAIN = ["name", "state", "gpus", "use", "allocated", "memory_used", "largest_memory", "findings"];
const COLUMNS: readonly Column<NodeRow>[] = [
  {
    key: "name",
    title: "col.node",
    long: true,
    value: (row) => row.name,
    show: (row) => <Link to={pathOf("nodes", row.name)}>{row.name}</Link>,
  },
  {
    key: "state",
    title: "col.state",
    promql: PROMQL.node_ready,
    part: "cluster",
    value: stateOf,
    show: (row) => <NodeState row={row} />,
    filter: (one) => word(`node_state.${one}`, one),
  },
  {
    key: "agent",
    title: "col.agent",
    about: "about.agent",
    value: (row) => (row.agent.up === null ? "none" : row.agent.up ? "up" : "down"),
    show: (row) => <AgentState row={row} />,
    filter: (one) => word(`agent.${one}`, one),
  },
  {
    key: "gpus",
    figure: "node.gpus",
    title: "col.gpus",
    about: "about.gpus_count",
    value: (row) => row.gpus,
    show: (row) => (
      <>
        <Value figure="node.gpus">{number(row.gpus)}</Value>
        {row.mig_instances > 0 && (
          <small>
            {" "}
            <Said text="nodes.instances" numbers={{ n: ["node.mig_instances", number(row.mig_instances)] }} />
          </small>
        )}
        {row.gpus_unlisted > 0 && (
          <small>
            {" "}
            <Said text="nodes.unlisted" numbers={{ n: ["node.gpus_unlisted", number(row.gpus_unlisted)] }} />
          </small>
        )}
      </>
    ),
    numeric: true,
  },
  {
    key: "by_class",
    figure: "node.by_class",
    title: "col.classes",
    about: "about.class",
    part: "analysis",
    value: classesOf,
    show: (row) => <ClassBar figure="node.by_class" counts={row.by_class} />,
    filter: className,
  },
  {
    key: "use",
    figure: "node.use",
    title: "col.use",
    about: "about.use_node",
    part: "analysis",
    promql: PROMQL.node_use,
    value: (row) => row.use,
    show: (row) => <Meter value={row.use} />,
    numeric: true,
  },
  {
    key: "allocated",
    figure: "node.memory_allocated",
    title: "col.allocated",
    about: "about.allocated_node",
    part: "cluster",
    promql: PROMQL.node_allocated,
    value: (row) => row.memory_allocated ?? row.counted_memory_requested,
    show: (row) =>
      row.memory_capacity === null && row.counted_memory_requested !== null ? (
        <Value figure="node.counted_memory_requested">
          <Share part={row.counted_memory_requested} all={row.counted_memory} />
        </Value>
      ) : (
        <Share part={row.memory_allocated} all={row.memory_capacity} />
      ),
    numeric: true,
  },
  {
    key: "memory_used",
    figure: "node.memory_used",
    title: "col.memory_used",
    about: "about.memory",
    promql: PROMQL.node_memory,
    value: (row) => row.memory_used,
    show: (row) => <Share part={row.memory_used} all={row.memory_total} />,
    numeric: true,
  },
  {
    key: "largest_memory",
    figure: "capacity.largest_memory",
    title: "col.largest_short",
    about: "about.largest",
    part: "cluster",
    promql: PROMQL.node_largest,
    value: (row) => row.largest_memory,
    show: (row) => bytes(row.largest_memory),
    numeric: true,
  },
  {
    key: "whole_gpus",
    figure: "capacity.whole_gpus",
    title: "col.whole",
    about: "about.whole",
    part: "cluster",
    promql: PROMQL.node_whole,
    value: (row) => row.whole_gpus,
    show: (row) => (
      <>
        <Value figure="capacity.whole_gpus">{number(row.whole_gpus)}</Value>
        <small>
          <OtherUnits counted={row.counted} />
        </small>
      </>
    ),
    numeric: true,
  },
  {
    key: "findings",
    figure: "capacity.findings",
    title: "col.findings",
    about: "about.findings",
    part: "cluster",
    promql: PROMQL.node_findings,
    value: (row) => row.findings,
    show: (row) => (row.findings ? <Tag tone="warn">{number(row.findings)}</Tag> : number(row.findings)),
    numeric: true,
  },
  { key: "pods", title: "col.pods", figure: "node.pods", value: (row) => row.pods, numeric: true },
  {
    key: "models",
    title: "col.model",
    value: (row) => row.models,
    show: (row) => row.models.map(shortModel).join(", ") || "–",
    filter: shortModel,
  },
  {
    key: "slots_free",
    figure: "capacity.slots_free",
    title: "col.slots_free",
    about: "about.slots",
    part: "cluster",
    promql: PROMQL.node_slots,
    value: (row) => row.slots_free,
    show: (row) =>
      row.slots_free === null ? (
        "–"
      ) : (
        <>
          <Value figure="capacity.slots_free">{number(row.slots_free)}</Value> /{" "}
          <Value figure="node.slots_capacity">{number(row.slots_capacity)}</Value>
        </>
      ),
    numeric: true,
  },
  {
    key: "power",
    figure: "node.power",
    title: "col.power",
    about: "about.power",
    promql: PROMQL.node_power,
    value: (row) => row.power,
    show: (row) => watts(row.power),
    numeric: true,
  },
  {
    key: "fragmentation",
    figure: "capacity.fragmentation",
    title: "col.fragmentation",
    about: "about.fragmentation",
    part: "cluster",
    promql: PROMQL.node_fragmentation,
    value: (row) => row.fragmentation,
    show: (row) => percent(row.fragmentation),
    numeric: true,
    optional: true,
  },
];
