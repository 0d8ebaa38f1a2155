/** How the fleet is doing: eight figures, every GPU, the course of classes, who wastes most, what needs attention. */
import { useState } from "preact/hooks";
import { type Loaded, useApi } from "../api/client";
import type { AttentionRow, Figures, GpuList, Overview } from "../api/shapes";
import { Course } from "../parts/course";
import { explained, Num, NumHead, Said, Value } from "../parts/figures";
import { FleetMap, useFleet } from "../parts/fleetmap";
import { bytes, number, percent, watts } from "../parts/format";
import { Icon } from "../parts/icon";
import { PageHead } from "../parts/pagehead";
import { current, known, PartNotes } from "../parts/partnote";
import { Age, Figure, Link, Meter, type Origin, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { attentionText } from "../parts/sentences";
import { Subject } from "../parts/subject";
import { scope } from "../state/scope";
import { restricted } from "../state/session";
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
  const say = (promql: string, source: Key): Origin => ({ promql, source: t(source), at: data.at });
  return (
    <div class="figures eight">
      <Figure
        title={t("figure.gpus")}
        figure="fleet.gpus_healthy"
        value={number(now.gpus_healthy)}
        beside={
          <small>
            {" "}
            / <Value figure="fleet.gpus">{number(now.gpus)}</Value>
          </small>
        }
        note={<Populations of={data} />}
        origin={say(PROMQL.gpus_healthy, "part.agents")}
        tone={(now.gpus_healthy ?? 0) < (now.gpus ?? 0) ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.allocated")}
        figure={now.memory_ratio === null ? "fleet.memory_allocated" : "fleet.memory_ratio"}
        value={now.memory_ratio === null ? bytes(now.memory_allocated) : percent(now.memory_ratio)}
        note={<Allocated now={now} hasLedger={known(data.parts, "cluster")} />}
        origin={say(PROMQL.memory_ratio, "part.cluster")}
        stale={!hasCluster}
      />
      <Figure
        title={t("figure.use")}
        figure="fleet.use"
        value={percent(now.use)}
        note={<Compared figure="fleet.use" now={now.use} before={before?.use} show={(value) => percent(value)} />}
        about={<span>{t("about.use", { n: number(now.gpus_measured) })}</span>}
        origin={say(PROMQL.use, "part.analysis")}
      />
      <Figure
        title={t("figure.idle")}
        figure="fleet.idle_held"
        value={
          <Link to="gpus" query={IDLE_HELD}>
            {number(now.idle_held)}
          </Link>
        }
        note={
          <>
            <OfInstances now={now} /> ·{" "}
            <Link to="idle">
              <Said
                within
                text="figure.tenants_idle"
                numbers={{ n: ["fleet.tenants_idle", number(now.tenants_idle)] }}
              />
            </Link>
          </>
        }
        about={<span>{explained("fleet.tenants_idle")}</span>}
        origin={say(PROMQL.idle_held, "part.analysis")}
        tone={now.idle_held ? "warn" : "plain"}
      />
      <Figure
        title={t("figure.unknown")}
        figure="fleet.unknown"
        value={
          <Link to="gpus" query={{ "f.use_class": "unknown" }}>
            {number(now.unknown)}
          </Link>
        }
        note={<OfInstances now={now} />}
        origin={say(PROMQL.unknown, "part.analysis")}
      />
      <Figure
        title={t("figure.waste")}
        figure="fleet.idle_gpu_hours_day"
        value={number(now.wasted_gpu_hours, 1)}
        note={
          known(data.parts, "history") ? (
            <Compared
              figure="fleet.idle_gpu_hours_day"
              now={now.wasted_gpu_hours}
              before={before?.wasted_gpu_hours}
              show={(value) => number(value, 1)}
            />
          ) : (
            t("part.history_needed")
          )
        }
        about={<span>{t("about.waste")}</span>}
        origin={say(PROMQL.waste, "part.history")}
      />
      <Figure
        title={t("figure.power")}
        figure="fleet.power"
        value={watts(now.power)}
        note={t(scope.value.length > 0 || restricted.value ? "figure.power_mine" : "figure.power_note")}
        origin={say(PROMQL.power, "part.agents")}
      />
      <Figure
        title={t("figure.pending")}
        figure="fleet.pending_pods"
        value={<Link to="scheduling">{number(now.pending_pods)}</Link>}
        note={known(data.parts, "cluster") ? t("figure.pending_note") : t("part.cluster_needed")}
        origin={say(PROMQL.pending, "part.cluster")}
        tone={now.pending_pods ? "warn" : "plain"}
        stale={!hasCluster}
      />
    </div>
  );
}

/** The classes of GPUs whose verdict is idle; those that no pod has are shown as unallocated. */
const IDLE_HELD = ["idle", "idle-held", "idle-preparing"].map((name) => ["f.use_class", name] as const);

/** What the GPUs are on, how many MIG divides, and of how many only the number is known. */
function Populations({ of: { now, nodes, namespaces } }: { of: Overview }) {
  return (
    <>
      <Said
        text="figure.gpus_note"
        numbers={{ nodes: ["fleet.nodes", number(nodes)], namespaces: ["fleet.namespaces", number(namespaces)] }}
      />
      {(now.gpus_divided ?? 0) > 0 && (
        <>
          {" · "}
          <Said
            text="figure.gpus_mig"
            numbers={{
              divided: ["fleet.gpus_divided", number(now.gpus_divided)],
              instances: ["fleet.mig_instances", number(now.mig_instances)],
            }}
          />
        </>
      )}
      {(now.gpus_unlisted ?? 0) > 0 && (
        <>
          {" · "}
          <Said text="figure.gpus_unlisted" numbers={{ n: ["fleet.gpus_unlisted", number(now.gpus_unlisted)] }} />
        </>
      )}
    </>
  );
}

function OfInstances({ now }: { now: Figures }) {
  return (
    <Said text="figure.of_instances" numbers={{ n: ["fleet.gpus_or_instances", number(now.gpus_or_instances)] }} />
  );
}

function Allocated({ now, hasLedger }: { now: Figures; hasLedger: boolean }) {
  if (!hasLedger) return <>{t("part.cluster_needed")}</>;
  if (now.memory_capacity === null) return <>{t("figure.allocated_mine")}</>;
  return (
    <Said
      text="figure.allocated_note"
      numbers={{
        used: ["fleet.memory_allocated", bytes(now.memory_allocated)],
        all: ["fleet.memory_capacity", bytes(now.memory_capacity)],
      }}
    />
  );
}

interface ComparedProps {
  readonly figure: string;
  readonly now: number | null;
  readonly before: number | null | undefined;
  readonly show: (value: number | null) => string;
}

/** The difference to one day before, in words and with an arrow. */
function Compared({ figure, now, before, show }: ComparedProps) {
  if (now === null || before === null || before === undefined) return <>{t("compared.none")}</>;
  const arrow = now > before ? "↑" : now < before ? "↓" : "=";
  if (arrow === "=") return <Said text="compared.same" numbers={{ value: [`${figure}_before`, show(before)] }} />;
  return <Said text="compared" values={{ arrow }} numbers={{ value: [`${figure}_before`, show(before)] }} />;
}

// ── waste and attention ───────────────────────────────────────────────────────────────────────────────────────────

function TopWaste({ data }: { data: Overview }) {
  const idle = (data.waste ?? []).filter((one) => one.idle_gpu_hours > 0);
  const most = Math.max(...idle.map((one) => one.idle_gpu_hours), 0.001);
  return (
    <Panel title={t("overview.waste")} note={t("overview.waste_when")} actions={<Link to="idle">{t("see_all")}</Link>}>
      <PartNotes parts={data.parts} names={["history"]} />
      {data.waste === null ? null : !idle.length ? (
        <div class="empty small">{t("empty.waste")}</div>
      ) : (
        <Scroll name="waste-by-namespace" rows={Math.min(8, idle.length)}>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.namespace")}</th>
                <NumHead title="col.idle_hours" figure="namespace.idle_gpu_hours_day" about="about.waste" />
                <NumHead title="col.share" figure="namespace.idle_ratio_day" />
              </tr>
            </thead>
            <tbody>
              {idle.slice(0, 8).map((one) => (
                <tr key={one.namespace} data-key={one.namespace}>
                  <th scope="row">
                    <Link to={pathOf("namespaces", one.namespace)}>{one.namespace}</Link>
                  </th>
                  <Num figure="namespace.idle_gpu_hours_day">
                    <Meter value={one.idle_gpu_hours / most} text={number(one.idle_gpu_hours, 1)} />
                  </Num>
                  <Num figure="namespace.idle_ratio_day">{percent(one.idle_ratio)}</Num>
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
    <Panel
      title={t("overview.attention")}
      note={<Value figure="fleet.attention">{number(data.attention_total)}</Value>}
    >
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
