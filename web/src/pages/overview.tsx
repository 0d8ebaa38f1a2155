/** How the fleet is doing: eight figures, every GPU, the course of classes, who wastes most, what needs attention. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Loaded, useApi } from "../api/client";
import type { AttentionRow, Figures, GpuList, Overview } from "../api/shapes";
import { Course } from "../parts/course";
import { FleetMap, useFleet } from "../parts/fleetmap";
import { bytes, number, percent, watts } from "../parts/format";
import { Icon } from "../parts/icon";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes } from "../parts/partnote";
import { Age, definition, Figure, Link, Meter, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { attentionText } from "../parts/sentences";
import { Subject } from "../parts/subject";
import { scope } from "../state/scope";
import { pathOf } from "../state/url";
import { type Key, t } from "../words";

export function OverviewPage() {
  const found = useApi<Overview>("/api/v1/overview", { namespace: scope.value });
  const fleet = useFleet(); // asked for at once, not when the figures are there
  const mine = scope.value.length > 0;
  return (
    <>
      <PageHead
        title={t(mine ? "overview.mine" : "nav.overview")}
        about={mine ? t("overview.scope", { names: scope.value.join(", ") }) : t("overview.about")}
      />
      <Shown of={found} rows={10}>
        {(data) => <Fleet data={data} fleet={fleet} />}
      </Shown>
    </>
  );
}

function Fleet({ data, fleet }: { data: Overview; fleet: Loaded<GpuList> }) {
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["analysis", "agents", "cluster"]} />
      {data.stale && (
        <p class="notice warn" role="status">
          <Icon name="warning" /> {t("stale.analysis")} <Age at={data.at} ago />
        </p>
      )}
      <AllFigures data={data} />
      <div class="columns">
        <FleetMap found={fleet} />
        <div class="two-thirds">
          <Course />
        </div>
        <div class="third">
          <TopWaste data={data} />
        </div>
        <Attention data={data} />
      </div>
    </div>
  );
}

// ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────

function AllFigures({ data }: { data: Overview }) {
  const { now, before } = data;
  const hasCluster = current(data.parts, "cluster");
  const say = (text: string, promql: string, source: Key): ComponentChildren =>
    definition(text, { promql, source: t(source), at: data.at });
  return (
    <div class="figures eight">
      <Figure
        title={t("figure.gpus")}
        value={<OfAll part={number(now.gpus_healthy)} all={number(now.gpus)} />}
        note={populations(data)}
        about={say(t("about.gpus"), PROMQL.gpus_healthy, "part.agents")}
        tone={(now.gpus_healthy ?? 0) < (now.gpus ?? 0) ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.allocated")}
        value={now.memory_ratio === null ? bytes(now.memory_allocated) : percent(now.memory_ratio)}
        note={allocated(now, hasCluster)}
        about={say(t("about.allocated"), PROMQL.memory_ratio, "part.cluster")}
        stale={!hasCluster}
      />
      <Figure
        title={t("figure.use")}
        value={percent(now.use)}
        note={<Compared now={now.use} before={before?.use} show={(value) => percent(value)} />}
        about={say(t("about.use", { n: number(now.gpus_measured) }), PROMQL.use, "part.analysis")}
      />
      <Figure
        title={t("figure.idle")}
        value={
          <Link to="gpus" query={IDLE_HELD}>
            {number(now.idle_held)}
          </Link>
        }
        note={
          <>
            {t("figure.of_instances", { n: number(now.gpus_or_instances) })} ·{" "}
            <Link to="idle">{t("figure.tenants_idle", { n: number(now.tenants_idle) })}</Link>
          </>
        }
        about={say(t("about.idle"), PROMQL.idle_held, "part.analysis")}
        tone={now.idle_held ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.unknown")}
        value={
          <Link to="gpus" query={{ "f.use_class": "unknown" }}>
            {number(now.unknown)}
          </Link>
        }
        note={t("figure.of_instances", { n: number(now.gpus_or_instances) })}
        about={say(t("about.unknown"), PROMQL.unknown, "part.analysis")}
      />
      <Figure
        title={t("figure.waste")}
        value={number(now.wasted_gpu_hours, 1)}
        note={
          <Compared now={now.wasted_gpu_hours} before={before?.wasted_gpu_hours} show={(value) => number(value, 1)} />
        }
        about={say(t("about.waste"), PROMQL.waste, "part.history")}
      />
      <Figure
        title={t("figure.power")}
        value={watts(now.power)}
        note={t("figure.power_note")}
        about={say(t("about.power"), PROMQL.power, "part.agents")}
      />
      <Figure
        title={t("figure.pending")}
        value={<Link to="scheduling">{number(now.pending_pods)}</Link>}
        note={hasCluster ? t("figure.pending_note") : t("part.cluster_needed")}
        about={say(t("about.pending"), PROMQL.pending, "part.cluster")}
        tone={now.pending_pods ? "warn" : "plain"}
        stale={!hasCluster}
      />
    </div>
  );
}

/** The classes of GPUs whose verdict is idle; those that no pod has are shown as unallocated. */
const IDLE_HELD = ["idle", "idle-held", "idle-preparing"].map((name) => ["f.use_class", name] as const);

/** What the GPUs are on, how many MIG divides, and of how many only the number is known. */
function populations({ now, nodes, namespaces }: Overview): string {
  const parts = [t("figure.gpus_note", { nodes: number(nodes), namespaces: number(namespaces) })];
  if (now.gpus_divided)
    parts.push(t("figure.gpus_mig", { divided: number(now.gpus_divided), instances: number(now.mig_instances) }));
  if (now.gpus_unlisted) parts.push(t("figure.gpus_unlisted", { n: number(now.gpus_unlisted) }));
  return parts.join(" · ");
}

function OfAll({ part, all }: { part: string; all: string }) {
  return (
    <>
      {part} <small>/ {all}</small>
    </>
  );
}

function allocated(now: Figures, hasCluster: boolean): string {
  if (!hasCluster) return t("part.cluster_needed");
  if (now.memory_capacity === null) return t("figure.allocated_mine");
  return t("figure.allocated_note", { used: bytes(now.memory_allocated), all: bytes(now.memory_capacity) });
}

interface ComparedProps {
  readonly now: number | null;
  readonly before: number | null | undefined;
  readonly show: (value: number | null) => string;
}

/** The difference to one day before, in words and with an arrow. */
function Compared({ now, before, show }: ComparedProps) {
  if (now === null || before === null || before === undefined) return <>{t("compared.none")}</>;
  const arrow = now > before ? "↑" : now < before ? "↓" : "=";
  return <>{t("compared", { arrow, value: show(before) })}</>;
}

// ── waste and attention ───────────────────────────────────────────────────────────────────────────────────────────

function TopWaste({ data }: { data: Overview }) {
  const idle = (data.waste ?? []).filter((one) => one.idle_gpu_hours > 0);
  const most = Math.max(...idle.map((one) => one.idle_gpu_hours), 0.001);
  return (
    <Panel title={t("overview.waste")} note={t("overview.waste_when")} actions={<Link to="idle">{t("see_all")}</Link>}>
      <PartNotes parts={data.parts} names={["history"]} />
      {!idle.length ? (
        <div class="empty small">{t("empty.waste")}</div>
      ) : (
        <Scroll>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.namespace")}</th>
                <th scope="col" class="num" title={t("about.waste")}>
                  {t("col.idle_hours")}
                </th>
                <th scope="col" class="num" title={t("about.idle_share")}>
                  {t("col.share")}
                </th>
              </tr>
            </thead>
            <tbody>
              {idle.slice(0, 8).map((one) => (
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
        </Scroll>
      )}
    </Panel>
  );
}

const FIRST = 10; // rows that are shown before more are asked for

function Attention({ data }: { data: Overview }) {
  const [all, setAll] = useState(false);
  const rows = all ? data.attention : data.attention.slice(0, FIRST);
  return (
    <Panel title={t("overview.attention")} note={number(data.attention_total)}>
      {rows.length === 0 ? (
        <div class="empty small">{t("empty.attention")}</div>
      ) : (
        <ul class="attention">
          {rows.map((row) => (
            <AttentionItem
              key={`${row.kind}${row.code}${row.gpu_id}${row.mig}${row.namespace}${row.pod}${row.node}`}
              row={row}
            />
          ))}
        </ul>
      )}
      {data.attention.length > FIRST && (
        <button type="button" class="link" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("attention.fewer") : t("attention.all", { n: number(data.attention.length) })}
        </button>
      )}
    </Panel>
  );
}

const URGENT = new Set<AttentionRow["kind"]>(["unhealthy", "xid", "no-data", "over-limit", "stalled"]);

function AttentionItem({ row }: { row: AttentionRow }) {
  return (
    <li>
      <Tag tone={URGENT.has(row.kind) ? "bad" : "warn"}>{t(`attention.${row.kind}`)}</Tag>
      <span class="what">
        {attentionText(row)}{" "}
        <span class="about-what">
          <Subject row={row} />
        </span>
      </span>
      {row.since && (
        <span class="muted when">
          <Age at={row.since} />
        </span>
      )}
    </li>
  );
}
