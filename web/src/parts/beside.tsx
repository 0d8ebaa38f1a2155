/** What a pod and a node use beside the GPUs: CPU, memory, I/O, network, load; how sure figures are; processes. */
import type { FigureRow, HostRow, NodeBeside, PodBeside } from "../api/shapes";
import { t, word } from "../words";
import { Num, NumHead, Said, Value } from "./figures";
import { bytes, number, percent, rate } from "./format";
import { Age, Empty, Figure, Panel, Scroll } from "./pieces";
import { PROMQL } from "./promql";

type Origin = Pick<PodBeside, "at" | "seconds" | "source">;

/** What a figure covers, and where it comes from. */
function from(promql: string, { at, seconds, source }: Origin) {
  return {
    span: seconds,
    origin: { promql, at, source: t(source === "agent" ? "part.agents" : "part.prometheus") },
  };
}

export function PodBesidePanel({ beside }: { beside: PodBeside | null }) {
  const known = beside !== null && (beside.containers.length > 0 || beside.received_rate !== null);
  return (
    <Panel title={t("beside.title")} note={t("beside.about")}>
      {known ? (
        (beside.containers.length ? beside.containers : [NOTHING]).map((row) => (
          <div key={row.container} class="beside" data-key={row.container ?? undefined}>
            {beside.containers.length > 1 && <h3>{row.container}</h3>}
            <HostFigures row={row} of={beside} />
          </div>
        ))
      ) : (
        <Empty title={t("beside.unknown")} why={t("beside.unknown_why")} doctor />
      )}
    </Panel>
  );
}

const NOTHING: HostRow = {
  container: null,
  cpu_cores: null,
  cpu_limit: null,
  memory: null,
  memory_limit: null,
  read_rate: null,
  throttled: null,
  written_rate: null,
};

function HostFigures({ row, of }: { row: HostRow; of: PodBeside }) {
  return (
    <div class="figures six plain">
      <Figure
        title={t("beside.cpu")}
        value={number(row.cpu_cores, 2)}
        note={
          row.cpu_limit === null ? (
            t("beside.no_limit")
          ) : (
            <Said text="beside.of_cores" numbers={{ n: ["tenant.host_cpu_limit", number(row.cpu_limit, 2)] }} />
          )
        }
        figure="tenant.host_cpu"
        {...from(PROMQL.host_cpu, of)}
      />
      <Figure
        title={t("beside.throttled")}
        value={percent(row.throttled)}
        figure="tenant.host_throttled"
        {...from(PROMQL.host_throttled, of)}
        {...(row.throttled !== null && row.throttled >= 0.25 ? { tone: "warn" as const } : {})}
      />
      <Figure
        title={t("beside.memory")}
        value={bytes(row.memory)}
        note={
          row.memory_limit === null ? (
            t("beside.no_limit")
          ) : (
            <Said text="of" numbers={{ all: ["tenant.host_memory_limit", bytes(row.memory_limit)] }} />
          )
        }
        figure="tenant.host_memory"
        {...from(PROMQL.host_memory, of)}
      />
      <Figure
        title={t("beside.read")}
        value={rate(row.read_rate)}
        figure="tenant.host_read"
        {...from(PROMQL.host_read, of)}
      />
      <Figure
        title={t("beside.written")}
        value={rate(row.written_rate)}
        figure="tenant.host_written"
        {...from(PROMQL.host_written, of)}
      />
      <Figure
        title={t("beside.network")}
        value={rate(of.received_rate)}
        note={
          of.sent_rate === null ? (
            t("beside.host_network")
          ) : (
            <Said text="beside.sent" numbers={{ rate: ["pod.host_sent", rate(of.sent_rate)] }} />
          )
        }
        figure="pod.host_received"
        {...from(PROMQL.host_network, of)}
      />
    </div>
  );
}

export function NodeBesidePanel({ beside }: { beside: NodeBeside | null }) {
  if (beside === null || (beside.cpus === null && beside.memory_total === null)) {
    return (
      <Panel title={t("beside.node")}>
        <Empty title={t("beside.unknown_node")} why={t("beside.unknown_why")} doctor />
      </Panel>
    );
  }
  const [one, five, fifteen] = beside.load;
  const used =
    beside.memory_total === null || beside.memory_available === null
      ? null
      : beside.memory_total - beside.memory_available;
  return (
    <Panel title={t("beside.node")} note={t("beside.node_about")}>
      <div class="figures four plain">
        <Figure
          title={t("beside.cpu_used")}
          value={percent(beside.cpu_used)}
          note={<Said text="beside.of_cpus" numbers={{ n: ["node.cpus", number(beside.cpus)] }} />}
          figure="node.cpu_used"
          {...from(PROMQL.node_cpu, beside)}
        />
        <Figure
          title={t("beside.iowait")}
          value={percent(beside.iowait)}
          figure="node.iowait"
          {...from(PROMQL.node_iowait, beside)}
        />
        <Figure
          title={t("beside.memory")}
          value={bytes(used)}
          note={<Said text="of" numbers={{ all: ["node.host_memory_total", bytes(beside.memory_total)] }} />}
          figure="node.host_memory_used"
          {...from(PROMQL.node_host_memory, beside)}
        />
        <Figure
          title={t("beside.load")}
          value={number(one, 2)}
          note={
            <Said
              text="beside.load_note"
              numbers={{
                five: ["node.load", number(five, 2), "5 min"],
                fifteen: ["node.load", number(fifteen, 2), "15 min"],
              }}
            />
          }
          figure="node.load"
          of="1 min"
          {...from(PROMQL.node_load, beside)}
        />
      </div>
    </Panel>
  );
}

// ── how sure ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** How sure a figure of one container on one GPU is; null: not known. */
export function certainty(
  beside: PodBeside | null,
  at: { gpu_id: string; mig: string | null; container: string | null },
  resource: FigureRow["resource"],
): string | null {
  const found = beside?.figures.find(
    (one) =>
      one.resource === resource && one.gpu_id === at.gpu_id && one.mig === at.mig && one.container === at.container,
  );
  if (!found) return null;
  const method = word(`method.${found.method}`, found.method);
  const sure = found.certainty ? t(`certainty.${found.certainty}`) : "";
  if (!found.error) return `${sure} · ${method}`;
  const bound = resource === "memory" ? bytes(found.error) : percent(found.error, 1);
  return `${sure} ± ${bound} · ${method}`;
}

// ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** The pod's processes on GPUs. With a PromQL engine they are not known, and nothing is shown. */
export function ProcessesPanel({ beside }: { beside: PodBeside | null }) {
  const rows = beside?.processes ?? null;
  if (rows === null) return null;
  return (
    <Panel title={t("beside.processes")} note={<Value figure="pod.processes">{number(rows.length)}</Value>}>
      {rows.length === 0 ? (
        <div class="empty small">{t("beside.no_processes")}</div>
      ) : (
        <Scroll name="processes" rows={rows.length}>
          <table>
            <thead>
              <tr>
                <th scope="col" class="num" data-names="process" title={t("about.pid")}>
                  {t("col.pid")}
                </th>
                <th scope="col">{t("col.command")}</th>
                <th scope="col" class="num" data-names="user" title={t("about.user")}>
                  {t("col.user")}
                </th>
                <NumHead title="col.memory" figure="process.memory" />
                <NumHead title="col.gpu_time" figure="process.use" />
                <th scope="col" class="num" data-names="moment">
                  {t("col.started")}
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((one) => (
                <tr key={`${one.gpu_id}${one.mig}${one.pid}`} data-key={[one.gpu_id, one.mig, one.pid].join("/")}>
                  <th scope="row" class="num">
                    {one.pid}
                  </th>
                  <td class="mono">{one.command ?? "–"}</td>
                  <td class="num">{one.user ?? "–"}</td>
                  <Num figure="process.memory">{bytes(one.memory)}</Num>
                  <Num figure="process.use">{percent(one.sm)}</Num>
                  <td class="num">
                    <Age at={one.started} ago />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}
