/** Capacity and placement: every node, with what it offers, what is allocated and what is used. */
import { useApi, withQuery } from "../api/client";
import type { NodeList, NodeRow } from "../api/shapes";
import { ClassBar } from "../parts/classbar";
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

const ratio = (part: number | null, whole: number | null): number | null =>
  part === null || !whole ? null : part / whole;

const classesOf = (row: NodeRow): string[] =>
  Object.entries(row.by_class).flatMap(([name, count]) => (count ? [name] : []));

const COLUMNS: readonly Column<NodeRow>[] = [
  {
    key: "name",
    title: "col.node",
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
    title: "col.gpus",
    about: "about.gpus_count",
    value: (row) => row.gpus,
    show: (row) => (
      <>
        {number(row.gpus)}
        {row.mig_instances > 0 && <small> {t("nodes.instances", { n: number(row.mig_instances) })}</small>}
        {row.gpus_unlisted > 0 && <small> {t("nodes.unlisted", { n: number(row.gpus_unlisted) })}</small>}
      </>
    ),
    numeric: true,
  },
  {
    key: "by_class",
    title: "col.classes",
    about: "about.class",
    part: "analysis",
    value: classesOf,
    show: (row) => <ClassBar counts={row.by_class} />,
    filter: className,
  },
  {
    key: "use",
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
    title: "col.allocated",
    about: "about.allocated_node",
    part: "cluster",
    promql: PROMQL.node_allocated,
    value: (row) => ratio(row.memory_allocated, row.memory_capacity),
    show: (row) => (
      <span title={`${bytes(row.memory_allocated)} / ${bytes(row.memory_capacity)}`}>
        <Meter value={ratio(row.memory_allocated, row.memory_capacity)} />
      </span>
    ),
    numeric: true,
  },
  {
    key: "memory_used",
    title: "col.memory_used",
    about: "about.memory",
    promql: PROMQL.node_memory,
    value: (row) => ratio(row.memory_used, row.memory_total),
    show: (row) => (
      <span title={`${bytes(row.memory_used)} / ${bytes(row.memory_total)}`}>
        <Meter value={ratio(row.memory_used, row.memory_total)} />
      </span>
    ),
    numeric: true,
  },
  {
    key: "largest_memory",
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
    title: "col.whole",
    about: "about.whole",
    part: "cluster",
    promql: PROMQL.node_whole,
    value: (row) => row.whole_gpus,
    show: (row) => number(row.whole_gpus),
    numeric: true,
  },
  {
    key: "findings",
    title: "col.findings",
    about: "about.findings",
    part: "cluster",
    promql: PROMQL.node_findings,
    value: (row) => row.findings,
    show: (row) => (row.findings ? <Tag tone="warn">{number(row.findings)}</Tag> : number(row.findings)),
    numeric: true,
  },
  { key: "pods", title: "col.pods", about: "about.pods", value: (row) => row.pods, numeric: true },
  {
    key: "models",
    title: "col.model",
    value: (row) => row.models,
    show: (row) => row.models.map(shortModel).join(", ") || "–",
    filter: shortModel,
  },
  {
    key: "slots_free",
    title: "col.slots_free",
    about: "about.slots",
    part: "cluster",
    promql: PROMQL.node_slots,
    value: (row) => row.slots_free,
    show: (row) => (row.slots_free === null ? "–" : `${number(row.slots_free)} / ${number(row.slots_capacity)}`),
    numeric: true,
  },
  {
    key: "power",
    title: "col.power",
    about: "about.power",
    promql: PROMQL.node_power,
    value: (row) => row.power,
    show: (row) => watts(row.power),
    numeric: true,
  },
  {
    key: "fragmentation",
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
