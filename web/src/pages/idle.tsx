/** Idle & reclaim: what is proven idle, the cases that follow from it, the policy, and what it would have done. */
import { useMemo } from "preact/hooks";
import { isMissing, useApi, withQuery } from "../api/client";
import type { CaseRow, GpuList, GpuRow, PolicyBody, ReclaimList, TenantRow, Waste } from "../api/shapes";
import { brakesOf, brakeText, settingOf, stateKey, stateName } from "../parts/cases";
import {
  classColumn,
  confidenceColumn,
  idleForColumn,
  maxColumn,
  namespaceColumn,
  nodeColumn,
  ownerColumn,
  requestColumn,
} from "../parts/columns";
import { Num, NumHead, Said, Value } from "../parts/figures";
import { bytes, duration, number, percent } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { About, definition, Empty, Figure, Link, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { Acting, Brakes, CASES, CaseTag, Mode } from "../parts/reclaim";
import { pick, Segments } from "../parts/segments";
import { type Column, Table } from "../parts/table";
import { range, scope } from "../state/scope";
import { carried, go, pathOf, place } from "../state/url";
import { named } from "../state/vocabulary";
import { t, word } from "../words";
import { BacktestView } from "./backtest";
import { CasesView, PolicyView } from "./cases";
import { GpuLink } from "./gpus";

/** One tenant that is idle, with the GPU that it holds, and its case if it has one. */
interface IdleRow {
  readonly gpu: GpuRow;
  readonly tenant: TenantRow;
  readonly case: CaseRow | null;
}

const VIEWS = ["now", "cases", "policy", "backtest"] as const;
type View = (typeof VIEWS)[number];

export function IdlePage() {
  const cases = useApi<ReclaimList>("/api/v1/reclaim", CASES);
  const policy = useApi<PolicyBody>("/api/v1/reclaim/policy");
  const older = isMissing(cases);
  const view = older ? "now" : pick(VIEWS, place.value.query.get("view"), "now");
  return (
    <>
      <PageHead title={t("nav.idle")} about={t("idle.about")}>
        {!older && (
          <Segments
            label={t("idle.view")}
            options={VIEWS}
            at={view}
            names={viewName}
            choose={(one) => go("idle", to(one))}
          />
        )}
      </PageHead>
      <div class="stack">
        <Acting />
        {older && (
          <p class="notice">
            <b>{t("reclaim.missing")}</b> {t("reclaim.missing_why")}
          </p>
        )}
        {cases.data && <Mode data={cases.data} policy={policy.data ?? null} />}
        {view === "now" && <NowView cases={cases.data?.cases ?? NO_CASES} />}
        {view === "cases" && <CasesView cases={cases} policy={policy} />}
        {view === "policy" && <PolicyView policy={policy} />}
        {view === "backtest" && <BacktestView policy={policy} />}
      </div>
    </>
  );
}

const NO_CASES: readonly CaseRow[] = [];
const viewName = (view: View): string => t(`idle_view.${view}`);

function to(view: View): URLSearchParams {
  const query = carried();
  if (view !== "now") query.set("view", view);
  return query;
}

function NowView({ cases }: { cases: readonly CaseRow[] }) {
  const query = { namespace: scope.value, limit: 100_000 };
  const found = useApi<GpuList>("/api/v1/gpus", query);
  const source = withQuery("/api/v1/gpus", { ...query, verdict: "idle" });
  return (
    <>
      <Shown of={found} rows={12}>
        {(data) => <Idle data={data} cases={cases} source={source} />}
      </Shown>
      <WasteTable />
    </>
  );
}

function Idle({ data, cases, source }: { data: GpuList; cases: readonly CaseRow[]; source: string }) {
  const rows = useMemo(() => idleRows(data.rows, cases), [data, cases]);
  const gpus = new Set(rows.map((row) => row.gpu.gpu_id)).size;
  const allocated = sumOf(rows, (row) => row.tenant.memory_allocated);
  const used = sumOf(rows, (row) => row.tenant.memory_used);
  const acted = rows.filter((row) => row.case?.actionable);
  const taken = sumOf(acted, (row) => row.tenant.memory_allocated);
  const unknown = data.rows.flatMap((row) => row.tenants).filter((tenant) => tenant.verdict === "unknown").length;
  const origin = { source: t("part.analysis"), at: data.at };
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "cluster"]} />
      <div class="figures six">
        <Figure
          title={t("idle.tenants")}
          figure="fleet.tenants_idle"
          value={number(rows.length)}
          note={t("idle.tenants_note")}
          about={definition(t("about.idle_tenants"), { ...origin, promql: PROMQL.tenant_verdict })}
        />
        <Figure
          title={t("idle.gpus")}
          figure="fleet.gpus_with_idle"
          value={number(gpus)}
          note={t("idle.gpus_note")}
          about={definition(t("about.idle_gpus"), origin)}
        />
        <Figure
          title={t("idle.allocated")}
          value={bytes(allocated.sum)}
          note={[t("idle.allocated_note"), unknownNote(allocated)].filter(Boolean).join(" · ")}
          figure="fleet.idle_memory_allocated"
          about={definition(t("about.idle_allocated"), { ...origin, promql: PROMQL.tenant_request })}
        />
        <Figure
          title={t("idle.used")}
          value={bytes(used.sum)}
          note={[t("idle.used_note"), unknownNote(used)].filter(Boolean).join(" · ")}
          figure="fleet.idle_memory_used"
          about={definition(t("about.idle_used"), { ...origin, promql: PROMQL.tenant_memory })}
        />
        <Figure
          title={t("idle.taken")}
          value={bytes(taken.sum)}
          note={
            <>
              <Said
                text="idle.taken_note"
                numbers={{
                  n: ["fleet.tenants_actionable", number(acted.length)],
                  all: ["fleet.tenants_idle", number(rows.length)],
                }}
              />{" "}
              ·{" "}
              <Said
                text="idle.taken_used"
                numbers={{
                  memory: ["fleet.memory_used_actionable", bytes(sumOf(acted, (row) => row.tenant.memory_used).sum)],
                }}
              />
              {taken.unknown > 0 && ` · ${unknownNote(taken)}`}
            </>
          }
          figure="fleet.idle_memory_actionable"
          about={definition(t("about.idle_taken"), origin)}
        />
        <Figure
          title={t("idle.unknown")}
          figure="fleet.tenants_unknown"
          value={number(unknown)}
          note={t("idle.unknown_note")}
          about={definition(t("about.unknown_tenants"), origin)}
        />
      </div>
      <LeftAlone rows={rows} />
      <Table
        name="idle"
        label={t("nav.idle")}
        rows={rows}
        columns={COLUMNS}
        main={MAIN}
        sort="idle_since"
        rowKey={(row) => [row.gpu.gpu_id, row.gpu.mig, row.tenant.pod_uid, row.tenant.container].join("/")}
        open={(row) => go(pathOf("workloads", row.tenant.namespace, row.tenant.pod), carried())}
        empty={<Empty title={t("empty.idle")} why={t("empty.idle_why")} doctor />}
        parts={data.parts}
        source={source}
      />
    </div>
  );
}

/** A sum over rows; null if the value is known of none of them, and how many rows have none. */
interface Sum {
  readonly sum: number | null;
  readonly unknown: number;
}

export function sumOf(rows: readonly IdleRow[], of: (row: IdleRow) => number | null): Sum {
  const known = rows.map(of).filter((one) => one !== null);
  const sum = known.length || rows.length === 0 ? known.reduce((all, one) => all + one, 0) : null;
  return { sum, unknown: rows.length - known.length };
}

const unknownNote = ({ unknown }: Sum): string => (unknown ? t("idle.without", { n: unknown }) : "");

/** Why the policy leaves tenants alone: each tenant once, by the first thing that keeps its case from moving on. */
function LeftAlone({ rows }: { rows: readonly IdleRow[] }) {
  const groups = leftAlone(rows);
  if (groups.length === 0) return null;
  return (
    <Panel
      title={t("idle.left_alone")}
      note={
        <Value figure="fleet.tenants_left_alone">{number(groups.reduce((all, one) => all + one.rows.length, 0))}</Value>
      }
    >
      <ul class="sentences">
        {groups.map((one) => (
          <li key={one.key}>
            <Said
              text="idle.left"
              values={{ why: one.why }}
              numbers={{
                n: ["fleet.tenants_left_alone_by_reason", one.rows.length, one.key],
                memory: ["fleet.memory_used_left_alone_by_reason", memoryText(one.rows), one.key],
              }}
            />{" "}
            {one.setting && <code>{one.setting}</code>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const memoryText = (rows: readonly IdleRow[]): string => bytes(sumOf(rows, (row) => row.tenant.memory_used).sum);

interface Group {
  readonly key: string; // the codes: a brake with its setting, or the state of the case
  readonly why: string;
  readonly setting: string;
  readonly rows: IdleRow[];
}

export function leftAlone(rows: readonly IdleRow[]): Group[] {
  const groups = new Map<string, Group>();
  for (const row of rows.filter((one) => !one.case?.actionable)) {
    const held = row.case ? brakesOf(row.case)[0] : undefined;
    const setting = held ? settingOf(held) : "";
    const why = held ? brakeText(held.brake) : whyNot(row.case);
    const codes = held ? [held.brake, held.setting, held.value] : [row.case ? stateKey(row.case) : "no-case"];
    const key = codes.filter((code) => code !== null).join("/");
    const group = groups.get(key) ?? { key, why, setting, rows: [] };
    group.rows.push(row);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.rows.length - a.rows.length);
}

function whyNot(found: CaseRow | null): string {
  if (found === null) return t("idle.no_case");
  return found.state === "candidate" ? t("idle.counting") : t("idle.in_state", { state: stateName(found) });
}

/** Tenants that are proven idle. Unknown is never listed here. */
export function idleRows(rows: readonly GpuRow[], cases: readonly CaseRow[] = []): IdleRow[] {
  const known = new Map(cases.map((one) => [one.pod_uid ?? `${one.namespace}/${one.pod}`, one]));
  return rows.flatMap((gpu) =>
    gpu.tenants
      .filter((tenant) => tenant.verdict === "idle")
      .map((tenant) => ({
        gpu,
        tenant,
        case: known.get(tenant.pod_uid || `${tenant.namespace}/${tenant.pod}`) ?? null,
      })),
  );
}

/** What was measured of the tenant; if it has no numbers of its own, why the GPU is idle. */
function evidence({ gpu, tenant }: IdleRow): string {
  if (tenant.use.max === null) return named("reason", gpu.reasons[0]);
  return t("idle.evidence", { max: percent(tenant.use.max, 1), coverage: percent(tenant.coverage) });
}

const MAIN = ["pod", "idle_since", "case", "use_class", "memory_used", "held_by"];
const COLUMNS: readonly Column<IdleRow>[] = [
  {
    key: "pod",
    title: "col.pod",
    long: true,
    value: (row) => `${row.tenant.namespace}/${row.tenant.pod}`,
    show: (row) => (
      <Link to={pathOf("workloads", row.tenant.namespace, row.tenant.pod)}>
        {row.tenant.namespace}/{row.tenant.pod}
      </Link>
    ),
  },
  idleForColumn("tenant.idle_seconds", (row) => row.tenant.idle_since, { promql: PROMQL.tenant_idle }),
  {
    key: "case",
    title: "col.case",
    about: "about.case",
    value: (row) => row.case && stateKey(row.case),
    show: (row) =>
      row.case ? (
        <Link to={pathOf("idle", row.case.id)} title={stateName(row.case)}>
          <CaseTag row={row.case} />
        </Link>
      ) : (
        <span class="muted">–</span>
      ),
    filter: (one) => (one ? word(`case_state.${one}`, one) : t("value.none")),
  },
  classColumn((row) => row.tenant.use_class, PROMQL.tenant_class),
  classColumn((row) => row.gpu.use_class, PROMQL.gpu_class, {
    key: "gpu_class",
    title: "col.gpu_is",
    about: "about.gpu_is",
  }),
  {
    key: "memory_used",
    figure: "tenant.memory_used",
    title: "col.memory",
    about: "about.memory",
    promql: PROMQL.tenant_memory,
    value: (row) => row.tenant.memory_used,
    show: (row) => bytes(row.tenant.memory_used),
    numeric: true,
  },
  requestColumn("tenant.memory_allocated", (row) => row.tenant.memory_allocated),
  {
    key: "held_by",
    title: "col.held_by",
    about: "about.held_by",
    value: (row) => [...(row.case?.held_by ?? [])],
    show: (row) => (row.case ? <Brakes row={row.case} /> : <span class="muted">–</span>),
    wrap: true,
    width: 240,
    filter: (one) => (one ? brakeText(one) : t("value.none")),
  },
  {
    key: "reason",
    title: "col.evidence",
    about: "about.evidence",
    part: "analysis",
    value: evidence,
    wrap: true,
    width: 200,
  },
  {
    key: "gpu_id",
    title: "col.gpu",
    value: (row) => row.gpu.gpu_id,
    show: (row) => <GpuLink row={row.gpu} />,
  },
  nodeColumn((row) => row.gpu.node),
  ownerColumn((row) => row.tenant.owner),
  namespaceColumn((row) => row.tenant.namespace),
  maxColumn("tenant.use_max", (row) => row.tenant.use.max, { digits: 1, optional: true }),
  {
    key: "coverage",
    figure: "tenant.coverage",
    title: "col.coverage",
    about: "about.coverage",
    part: "analysis",
    promql: PROMQL.gpu_coverage,
    value: (row) => row.tenant.coverage,
    show: (row) => percent(row.tenant.coverage),
    numeric: true,
    optional: true,
  },
  confidenceColumn("tenant.confidence", (row) => row.tenant.confidence),
];

function WasteTable() {
  const found = useApi<Waste>("/api/v1/waste", { since: range.value, group_by: "tenant", limit: 200 });
  // the period begins at a whole hour, so it is longer than the range
  const period = found.data ? (Date.parse(found.data.end) - Date.parse(found.data.begin)) / 1000 : range.value;
  return (
    <Panel
      title={t("idle.waste")}
      note={typeof period === "number" ? duration(period) : period}
      actions={<About of={t("idle.waste")}>{definition(t("about.waste"), { source: t("part.history") })}</About>}
    >
      <Shown of={found} rows={5}>
        {(data) =>
          !data.history ? (
            <Empty title={t("empty.history")} why={t("empty.history_why")} doctor />
          ) : data.rows.length === 0 ? (
            <div class="empty small">{t("empty.waste")}</div>
          ) : (
            <Scroll name="waste" rows={data.rows.length}>
              <table>
                <thead>
                  <tr>
                    <th scope="col">{t("col.who")}</th>
                    <NumHead title="col.idle_hours" figure="waste.idle_gpu_hours" span={period} />
                    <NumHead title="col.used_hours" figure="waste.in_use_gpu_hours" span={period} />
                    <NumHead title="col.unknown_hours" figure="waste.unknown_gpu_hours" span={period} />
                    <NumHead title="col.idle_share" figure="waste.idle_ratio" span={period} />
                    <th scope="col">{t("col.now")}</th>
                  </tr>
                </thead>
                <tbody>
                  {data.rows
                    .filter((row) => scope.value.length === 0 || scope.value.includes(row.namespace ?? ""))
                    .map((row) => (
                      <tr
                        key={`${row.namespace}/${row.pod}/${row.node}/${row.model}`}
                        data-key={[row.namespace, row.pod, row.node, row.model].join("/")}
                      >
                        <th scope="row">
                          {row.namespace && row.pod ? (
                            <Link to={pathOf("workloads", row.namespace, row.pod)}>
                              {row.namespace}/{row.pod}
                            </Link>
                          ) : (
                            t("value.several")
                          )}
                        </th>
                        <Num figure="waste.idle_gpu_hours">{number(row.idle_gpu_hours, 1)}</Num>
                        <Num figure="waste.in_use_gpu_hours">{number(row.in_use_gpu_hours, 1)}</Num>
                        <Num figure="waste.unknown_gpu_hours">{number(row.unknown_gpu_hours, 1)}</Num>
                        <Num figure="waste.idle_ratio">{percent(row.idle_ratio)}</Num>
                        <td>
                          {row.verdict === "idle" ? (
                            <Tag tone="warn">{t("verdict.idle")}</Tag>
                          ) : (
                            t(`verdict.${row.verdict}`)
                          )}
                        </td>
                      </tr>
                    ))}
                </tbody>
              </table>
            </Scroll>
          )
        }
      </Shown>
    </Panel>
  );
}
