/** How is the fleet doing: six figures, the course of classes, what needs attention, who wastes most, every GPU. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { AttentionRow, ClassHistory, Figures, GpuList, GpuRow, Overview } from "../api/shapes";
import { Chart } from "../parts/chart";
import { CLASSES, classOf, colour, type UseClass } from "../parts/classes";
import { bytes, duration, number, percent, shortId, watts } from "../parts/format";
import { ZOOMS, type Zoom } from "../parts/heatlayout";
import { type Cell, className, HeatMap, HeatTable, Legend } from "../parts/heatmap";
import { Icon } from "../parts/icon";
import { current, PartNotes } from "../parts/partnote";
import { Age, definition, Empty, Figure, Link, Meter, Panel, Shown, Tag } from "../parts/pieces";
import { range, scope } from "../state/scope";
import { carried, go, pathOf, place, setQuery } from "../state/url";
import { named } from "../state/vocabulary";
import { t } from "../words";

export function OverviewPage() {
  const found = useApi<Overview>("/api/v1/overview", { namespace: scope.value });
  return (
    <>
      <div class="page-head">
        <div class="grow">
          <h1>{scope.value.length ? t("overview.mine") : t("nav.overview")}</h1>
          <p class="sub">
            {scope.value.length ? t("overview.scope", { names: scope.value.join(", ") }) : t("overview.about")}
          </p>
        </div>
      </div>
      <Shown of={found} rows={10}>
        {(data) => <Fleet data={data} />}
      </Shown>
    </>
  );
}

function Fleet({ data }: { data: Overview }) {
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "agents", "cluster"]} />
      {data.stale && (
        <p class="notice warn" role="status">
          <Icon name="warning" /> {t("stale.analysis")} <Age at={data.at} ago />
        </p>
      )}
      <SixFigures now={data.now} before={data.before} data={data} />
      <div class="columns">
        <Panel title={t("overview.heat")}>
          <Map />
        </Panel>
        <div class="two-thirds">
          <Panel title={t("overview.course", { range: range.value })}>
            <Course />
          </Panel>
        </div>
        <div class="third">
          <TopWaste data={data} />
        </div>
        <Attention data={data} />
      </div>
    </div>
  );
}

function SixFigures({ now, before, data }: { now: Figures; before: Figures | null; data: Overview }) {
  const hasCluster = current(data.parts, "cluster");
  return (
    <div class="figures">
      <Figure
        title={t("figure.gpus")}
        value={
          <>
            {number(now.gpus_healthy)} <small>/ {number(now.gpus)}</small>
          </>
        }
        note={t("figure.gpus_note", { nodes: number(data.nodes), namespaces: number(data.namespaces) })}
        about={definition(t("about.gpus"), "count(vgpuscope_gpu_info)")}
        tone={now.gpus !== null && now.gpus_healthy !== null && now.gpus_healthy < now.gpus ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.allocated")}
        value={percent(now.memory_ratio)}
        note={
          hasCluster
            ? t("figure.allocated_note", { used: bytes(now.memory_allocated), all: bytes(now.memory_capacity) })
            : t("part.cluster_needed")
        }
        about={definition(
          t("about.allocated"),
          "sum(vgpuscope_cluster_memory_allocated_bytes) / sum(vgpuscope_cluster_memory_bytes)",
        )}
      />
      <Figure
        title={t("figure.use")}
        value={percent(now.use)}
        note={<Compared now={now.use} before={before?.use ?? null} show={(value) => percent(value)} />}
        about={definition(t("about.use", { n: number(now.gpus_measured) }))}
      />
      <Figure
        title={t("figure.idle")}
        value={<Link to="idle">{number(now.gpus_idle_held)}</Link>}
        note={
          <Compared now={now.gpus_idle_held} before={before?.gpus_idle_held ?? null} show={(value) => number(value)} />
        }
        about={definition(t("about.idle"))}
        tone={now.gpus_idle_held ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.unknown")}
        value={
          <Link to="gpus" query={{ "f.use_class": "unknown" }}>
            {number(now.gpus_unknown)}
          </Link>
        }
        note={t("figure.unknown_note")}
        about={definition(t("about.unknown"))}
      />
      <Figure
        title={t("figure.waste")}
        value={
          <>
            {number(now.wasted_gpu_hours, 1)} <small>{t("unit.gpu_hours")}</small>
          </>
        }
        note={
          <Compared
            now={now.wasted_gpu_hours}
            before={before?.wasted_gpu_hours ?? null}
            show={(value) => number(value, 1)}
          />
        }
        about={definition(t("about.waste"))}
      />
      <Figure
        title={t("figure.power")}
        value={watts(now.power)}
        note={t("figure.power_note")}
        about={definition(t("about.power"), "sum(vgpuscope_gpu_power_watts)")}
      />
      <Figure
        title={t("figure.pending")}
        value={<Link to="scheduling">{number(now.pending_pods)}</Link>}
        note={hasCluster ? t("figure.pending_note") : t("part.cluster_needed")}
        about={definition(t("about.pending"))}
        tone={now.pending_pods ? "warn" : "plain"}
      />
    </div>
  );
}

/** The difference to one day before, in words and with an arrow. */
function Compared({
  now,
  before,
  show,
}: {
  now: number | null;
  before: number | null;
  show: (value: number | null) => string;
}) {
  if (now === null || before === null) return <>{t("compared.none")}</>;
  const arrow = now > before ? "↑" : now < before ? "↓" : "=";
  return <>{t("compared", { arrow, value: show(before) })}</>;
}

// ── the map of all GPUs ───────────────────────────────────────────────────────────────────────────────────────────

const GROUPS = ["node", "model", "namespace"] as const;
type Group = (typeof GROUPS)[number];
const FIELDS = "gpu_id,mig,profile,node,index,model,use_class,held,tenants,idle_since,use";

function Map() {
  const found = useApi<GpuList>("/api/v1/gpus", { namespace: scope.value, fields: FIELDS, limit: 100_000 });
  const query = place.value.query;
  const group = pick(GROUPS, query.get("group"), "node");
  const zoom = pick(ZOOMS, query.get("zoom"), "auto");
  return (
    <Shown of={found} rows={8}>
      {(data) => <MapOf rows={data.rows} group={group} zoom={zoom} />}
    </Shown>
  );
}

function pick<T extends string>(allowed: readonly T[], asked: string | null, otherwise: T): T {
  return allowed.includes(asked as T) ? (asked as T) : otherwise;
}

function MapOf({ rows, group, zoom }: { rows: readonly GpuRow[]; group: Group; zoom: Zoom }) {
  const cells = useMemo(() => rows.map((row) => cellOf(row, group)).sort(byGroup), [rows, group]);
  if (cells.length === 0) return <NoGpus />;
  return (
    <>
      <div class="toolbar">
        <Legend cells={cells} choose={(name) => go("gpus", withFilter(name))} />
        <span class="grow" />
        <Segments
          label={t("heat.group")}
          options={GROUPS}
          at={group}
          names={(one) => t(`group.${one}`)}
          choose={(one) => setQuery({ group: one === "node" ? null : one })}
        />
        <Segments
          label={t("heat.zoom")}
          options={ZOOMS}
          at={zoom}
          names={(one) => t(`zoom.${one}`)}
          choose={(one) => setQuery({ zoom: one === "auto" ? null : one })}
        />
      </div>
      <HeatMap
        cells={cells}
        zoom={zoom}
        label={t("heat.label", { n: number(cells.length) })}
        open={(cell) => go(pathOf("gpus", ...cell.id.split("|").slice(0, 1)), withMig(cell.id))}
      />
      <HeatTable cells={cells} head={t(`group.${group}`)} />
    </>
  );
}

function withFilter(name: UseClass): URLSearchParams {
  const query = carried();
  query.set("f.use_class", name);
  return query;
}

function withMig(id: string): URLSearchParams {
  const query = carried();
  const mig = id.split("|")[1];
  if (mig) query.set("mig", mig);
  return query;
}

export function Segments<T extends string>({
  label,
  options,
  at,
  names,
  choose,
}: {
  label: string;
  options: readonly T[];
  at: T;
  names: (one: T) => string;
  choose: (one: T) => void;
}) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((one) => (
        <button key={one} type="button" aria-pressed={one === at} onClick={() => choose(one)}>
          {names(one)}
        </button>
      ))}
    </div>
  );
}

/** The class that is shown: an idle GPU that no pod has is not wasted by anyone. */
export function shownClass(row: Pick<GpuRow, "use_class" | "held">): UseClass {
  return row.use_class === "idle" && row.held === false ? "unallocated" : classOf(row.use_class);
}

function cellOf(row: GpuRow, group: Group): Cell {
  const pods = row.tenants.map((tenant) => `${tenant.namespace}/${tenant.pod}`);
  const spaces = [...new Set(row.tenants.map((tenant) => tenant.namespace))];
  return {
    id: `${row.gpu_id}|${row.mig ?? ""}`,
    group:
      group === "node"
        ? (row.node ?? "")
        : group === "model"
          ? (row.model ?? "")
          : spaces.length > 1
            ? t("group.several")
            : (spaces[0] ?? t("group.no_namespace")),
    useClass: shownClass(row),
    title: `${row.node ?? "?"} · ${t("gpu.index", { n: row.index ?? "?" })}${row.profile ? ` · ${row.profile}` : ""}`,
    lines: [
      `${row.model ?? ""} ${shortId(row.gpu_id)}`,
      t("heat.use", { use: percent(row.use.mean) }),
      ...(pods.length ? [pods.slice(0, 3).join(", ") + (pods.length > 3 ? ` +${pods.length - 3}` : "")] : []),
      ...row.tenants
        .filter((tenant) => tenant.verdict === "idle" && row.use_class !== "idle")
        .slice(0, 2)
        .map((tenant) => t("heat.idle_tenant", { pod: tenant.pod })),
    ],
  };
}

const order = new Intl.Collator("en", { numeric: true });
const byGroup = (a: Cell, b: Cell): number => order.compare(a.group, b.group) || order.compare(a.title, b.title);

export function NoGpus() {
  return (
    <Empty
      title={t("empty.gpus")}
      why={t(scope.value.length ? "empty.gpus_scope" : "empty.gpus_why")}
      {...(scope.value.length ? {} : { command: "vgpuscope analyze --once --targets NODE:9394" })}
    />
  );
}

// ── the course of classes ─────────────────────────────────────────────────────────────────────────────────────────

export function Course({ query = {} }: { query?: Record<string, string> }) {
  const found = useApi<ClassHistory>("/api/v1/history/classes", {
    range: range.value,
    namespace: scope.value,
    ...query,
  });
  return (
    <Shown of={found} rows={5}>
      {(data) => <CourseOf data={data} />}
    </Shown>
  );
}

function CourseOf({ data }: { data: ClassHistory }) {
  const lines = useMemo(
    () =>
      CLASSES.flatMap((name) => {
        const column = data.columns.find((one) => one.use_class === name);
        return column ? [{ name: className(name), colour: colour(name), values: column.gpus }] : [];
      }),
    [data],
  );
  if (data.source === "none" || data.times.length === 0) {
    return (
      <>
        <PartNotes parts={data.parts} names={["history"]} />
        <Empty title={t("empty.history")} why={t("empty.history_why")} />
      </>
    );
  }
  return (
    <>
      <PartNotes parts={data.parts} names={["history"]} />
      <Chart
        times={data.times}
        lines={lines}
        stacked
        label={t("overview.course", { range: range.value })}
        show={(value) => number(value, 1)}
        height={230}
      />
    </>
  );
}

// ── waste and attention ───────────────────────────────────────────────────────────────────────────────────────────

function TopWaste({ data }: { data: Overview }) {
  const most = Math.max(...(data.waste ?? []).map((one) => one.idle_gpu_hours), 0.001);
  return (
    <Panel title={t("overview.waste")} actions={<Link to="idle">{t("see_all")}</Link>}>
      <PartNotes parts={data.parts} names={["history"]} />
      {!data.waste?.length ? (
        <div class="empty small">{t("empty.waste")}</div>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.namespace")}</th>
                <th scope="col" class="num">
                  {t("col.idle_hours")}
                </th>
                <th scope="col" class="num">
                  {t("col.idle_share")}
                </th>
              </tr>
            </thead>
            <tbody>
              {data.waste.slice(0, 8).map((one) => (
                <tr key={one.namespace}>
                  <th scope="row">
                    <Link to={pathOf("namespaces", one.namespace)}>{one.namespace}</Link>
                  </th>
                  <td class="num">
                    <Meter value={one.idle_gpu_hours / most} text={number(one.idle_gpu_hours, 1)} />
                  </td>
                  <td class="num">{percent(one.idle_ratio)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Attention({ data }: { data: Overview }) {
  return (
    <Panel title={t("overview.attention", { n: number(data.attention_total) })}>
      {data.attention.length === 0 ? (
        <div class="empty small">{t("empty.attention")}</div>
      ) : (
        <ul class="attention">
          {data.attention.slice(0, 20).map((row, place) => (
            <AttentionItem key={`${row.kind}${row.gpu_id}${row.pod}${place}`} row={row} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

/** Of which kind the code of a row is. */
const CODES: Partial<Record<AttentionRow["kind"], "scheduling" | "finding" | "health" | "error">> = {
  "pending-long": "scheduling",
  finding: "finding",
  unhealthy: "health",
  "no-data": "error",
};
const URGENT = new Set<AttentionRow["kind"]>(["unhealthy", "xid", "no-data", "over-limit", "stalled"]);

function AttentionItem({ row }: { row: AttentionRow }) {
  return (
    <li>
      <Tag tone={URGENT.has(row.kind) ? "bad" : "warn"}>{t(`attention.${row.kind}`)}</Tag>
      <span class="what">
        <Subject row={row} />{" "}
        {row.code && <span class="muted">{row.message ?? named(CODES[row.kind] ?? "reason", row.code)}</span>}
      </span>
      <span class="num">{amount(row)}</span>
      {row.since && (
        <span class="muted hide-small">
          <Age at={row.since} ago />
        </span>
      )}
    </li>
  );
}

function amount(row: AttentionRow): string {
  if (row.number === null) return "";
  switch (row.unit) {
    case "seconds":
      return duration(row.number);
    case "bytes":
      return bytes(row.number);
    case "ratio":
      return percent(row.number);
    case "xid":
      return `XID ${row.number}`;
    default:
      return number(row.number);
  }
}

/** The object that a row is about, as links. */
export function Subject({
  row,
}: {
  row: { kind?: string; namespace: string | null; pod: string | null; gpu_id: string | null; node: string | null };
}) {
  return (
    <>
      {row.pod && row.namespace && (
        <Link to={pathOf(row.kind === "pending-long" ? "scheduling" : "workloads", row.namespace, row.pod)}>
          {row.namespace}/{row.pod}
        </Link>
      )}
      {row.gpu_id && (
        <>
          {row.pod ? " · " : ""}
          <Link to={pathOf("gpus", row.gpu_id)} class="mono">
            {shortId(row.gpu_id)}
          </Link>
        </>
      )}
      {row.node && (
        <>
          {row.pod || row.gpu_id ? " · " : ""}
          <Link to={pathOf("nodes", row.node)}>{row.node}</Link>
        </>
      )}
    </>
  );
}
