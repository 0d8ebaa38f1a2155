/** The map of all GPUs, grouped by node, model or namespace. */
import { useMemo } from "preact/hooks";
import { type Loaded, useApi } from "../api/client";
import type { GpuList, GpuRow } from "../api/shapes";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { carried, go, pathOf, place, setQuery } from "../state/url";
import { t } from "../words";
import { shownClass, type UseClass } from "./classes";
import { number, percent, shortId, shortModel } from "./format";
import { ZOOMS } from "./heatlayout";
import { type Cell, HeatMap, HeatTable, Legend } from "./heatmap";
import { Empty, Panel, Shown } from "./pieces";
import { pick, Segments } from "./segments";

const GROUPS = ["node", "model", "namespace"] as const;
type Group = (typeof GROUPS)[number];
// What the map draws; 10,000 shared GPUs with all their fields are 25 MB.
const FIELDS =
  "gpu_id,mig,profile,node,index,model,use_class,held,verdict,use.mean,tenants.namespace,tenants.pod,tenants.verdict";
/** What the map asks for; index.html asks for the same before the program is there. */
export const FLEET = { fields: FIELDS, limit: 100_000 };

/** The GPUs of the map. */
export function useFleet(): Loaded<GpuList> {
  return useApi<GpuList>("/api/v1/gpus", { namespace: scope.value, ...FLEET });
}

export function FleetMap({ found }: { found: Loaded<GpuList> }) {
  const group = pick(GROUPS, place.value.query.get("group"), "node");
  const zoom = pick(ZOOMS, place.value.query.get("zoom"), "auto");
  return (
    <Panel
      title={t(scope.value.length ? "nav.gpus" : "overview.heat")}
      actions={
        <>
          <Segments
            label={t("heat.group")}
            options={GROUPS}
            at={group}
            names={(one) => t(`group.${one}`)}
            choose={(one) => setQuery({ group: one === "node" ? null : one }, { replace: false })}
          />
          <Segments
            label={t("heat.zoom")}
            options={ZOOMS}
            at={zoom}
            names={(one) => t(`zoom.${one}`)}
            choose={(one) => setQuery({ zoom: one === "auto" ? null : one }, { replace: false })}
          />
        </>
      }
    >
      <Shown of={found} rows={8}>
        {(data) => <MapOf rows={data.rows} group={group} zoom={zoom} />}
      </Shown>
    </Panel>
  );
}

function MapOf({ rows, group, zoom }: { rows: readonly GpuRow[]; group: Group; zoom: (typeof ZOOMS)[number] }) {
  const cells = useMemo(() => cellsOf(rows, group), [rows, group]);
  if (cells.length === 0) return <NoGpus />;
  return (
    <div class="stack tight">
      <Legend cells={cells} choose={(name) => go("gpus", withClass(name))} />
      <HeatMap cells={cells} zoom={zoom} label={t("heat.label", { n: number(cells.length) })} open={openCell} />
      <HeatTable cells={cells} head={t(`group.${group}`)} />
    </div>
  );
}

function withClass(name: UseClass): URLSearchParams {
  const query = carried();
  query.set("f.use_class", name);
  return query;
}

function openCell(cell: Cell): void {
  const [id = "", mig] = cell.id.split("|");
  const query = carried();
  if (mig) query.set("mig", mig);
  go(pathOf("gpus", id), query);
}

const order = new Intl.Collator("en", { numeric: true });

const known = new WeakMap<readonly GpuRow[], Map<string, Cell[]>>();

/** One cell for each GPU or MIG instance, ordered by group, node and index; made once for each group of an answer. */
export function cellsOf(rows: readonly GpuRow[], group: Group): Cell[] {
  const name = `${group}/${language.value}`;
  const made = known.get(rows) ?? new Map<string, Cell[]>();
  known.set(rows, made);
  const cells = made.get(name) ?? orderedCells(rows, group);
  made.set(name, cells);
  return cells;
}

function orderedCells(rows: readonly GpuRow[], group: Group): Cell[] {
  const groups = rows.map((row) => groupOf(row, group));
  const ranks = rankOf(groups);
  const nodes = group === "node" ? ranks : rankOf(rows.map((row) => row.node ?? ""));
  return rows
    .map((row, at) => ({ row, name: groups[at]!, rank: ranks.get(groups[at]!)!, node: nodes.get(row.node ?? "")! }))
    .sort((a, b) => a.rank - b.rank || a.node - b.node || (a.row.index ?? -1) - (b.row.index ?? -1))
    .map(({ row, name }) => new GpuCell(row, name));
}

/** Each text with its place in order: comparing 10,000 names by locale is slow, comparing places is not. */
function rankOf(texts: readonly string[]): Map<string, number> {
  return new Map([...new Set(texts)].sort(order.compare).map((text, place) => [text, place]));
}

function groupOf(row: GpuRow, group: Group): string {
  if (group === "node") return row.node ?? "";
  if (group === "model") return shortModel(row.model ?? "");
  const spaces = new Set(row.tenants.map((tenant) => tenant.namespace));
  return spaces.size > 1 ? t("group.several") : ([...spaces][0] ?? t("group.no_namespace"));
}

/** One of thousands: what only a tooltip shows is made when it is shown. */
class GpuCell implements Cell {
  readonly useClass: UseClass;
  readonly idleTenant: boolean;

  constructor(
    private readonly row: GpuRow,
    readonly group: string,
  ) {
    this.useClass = shownClass(row);
    this.idleTenant = row.verdict !== "idle" && row.tenants.some((tenant) => tenant.verdict === "idle");
  }

  get id(): string {
    return `${this.row.gpu_id}|${this.row.mig ?? ""}`;
  }

  get title(): string {
    const { node, index, profile } = this.row;
    return `${node ?? "?"} · ${t("gpu.index", { n: index ?? "?" })}${profile ? ` · ${profile}` : ""}`;
  }

  lines(): readonly string[] {
    return linesOf(this.row);
  }
}

const MOST = 3; // pods in a tooltip

function linesOf(row: GpuRow): string[] {
  const pods = row.tenants.map((tenant) => `${tenant.namespace}/${tenant.pod}`);
  const idle = row.tenants.filter((tenant) => tenant.verdict === "idle" && row.verdict !== "idle");
  return [
    `${shortModel(row.model ?? "")} ${shortId(row.gpu_id)}`.trim(),
    t("heat.use", { use: percent(row.use.mean) }),
    ...(pods.length ? [pods.slice(0, MOST).join(", ") + (pods.length > MOST ? ` +${pods.length - MOST}` : "")] : []),
    ...idle.slice(0, 2).map((tenant) => t("heat.idle_tenant", { pod: tenant.pod })),
  ];
}

export function NoGpus() {
  if (scope.value.length) return <Empty title={t("empty.gpus")} why={t("empty.gpus_scope")} />;
  return (
    <Empty
      title={t("empty.gpus")}
      why={t("empty.gpus_why")}
      command="kubectl get pods -A -l app.kubernetes.io/name=vgpuscope -o wide"
      doctor
    />
  );
}
