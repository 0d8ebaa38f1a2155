/** Why pods wait, how long scheduling takes, and what still fits. */
import { useState } from "preact/hooks";
import { useApi, withQuery } from "../api/client";
import type { DecisionList, PendingRow, Scheduling } from "../api/shapes";
import { Decisions, hasExtender } from "../parts/decisions";
import { Num, NumHead, Said } from "../parts/figures";
import { WhatIfPanel } from "../parts/fit";
import { bytes, duration, number, percent } from "../parts/format";
import { realOwner } from "../parts/owner";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes, part } from "../parts/partnote";
import { Age, Empty, Figure, Link, Meter, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { asks } from "../parts/sentences";
import { type Column, Table } from "../parts/table";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t, word } from "../words";
import { Fits, OtherUnits } from "./node";

export function SchedulingPage() {
  const found = useApi<Scheduling>("/api/v1/scheduling", { namespace: scope.value });
  const decided = useApi<DecisionList>("/api/v1/decisions", { namespace: scope.value });
  return (
    <>
      <PageHead title={t("nav.scheduling")} about={t("scheduling.about")} />
      <div class="stack">
        <Shown of={found} rows={12}>
          {(data) => <All data={data} />}
        </Shown>
        {decided.state === "ok" && hasExtender(decided.data) && (
          <>
            <PartNotes parts={decided.data.parts} names={["extender"]} />
            <Decisions data={decided.data} />
            <WhatIfPanel namespace={scope.value[0]} />
          </>
        )}
      </div>
    </>
  );
}

function All({ data }: { data: Scheduling }) {
  if (!current(data.parts, "cluster") && data.pending_count === null) {
    return (
      <>
        <PartNotes parts={data.parts} names={["cluster"]} />
        <Empty
          title={t("empty.cluster")}
          why={t("empty.cluster_why")}
          command="vgpuscope analyzer --cluster-url http://CLUSTER-EXPORTER:31993"
          doctor
        />
      </>
    );
  }
  const hasCluster = current(data.parts, "cluster");
  const say = (promql: string) => ({ promql, source: t("part.cluster"), at: part(data.parts, "cluster")?.at });
  return (
    <div class={hasCluster ? "stack" : "stack stale-data"}>
      <PartNotes parts={data.parts} names={["cluster"]} />
      <div class="figures six">
        <Figure
          title={t("figure.pending")}
          figure="fleet.pending_pods"
          value={number(data.pending_count)}
          note={
            data.oldest_seconds !== null && (
              <Said
                text="scheduling.oldest"
                numbers={{ time: ["fleet.pending_oldest", duration(data.oldest_seconds)] }}
              />
            )
          }
          origin={say(PROMQL.pending)}
          tone={data.pending_count ? "warn" : "plain"}
        />
        <Figure
          title={t("scheduling.bound")}
          figure="fleet.bound"
          value={number(data.bound)}
          note={
            data.failed !== null && (
              <Said text="scheduling.failed" numbers={{ n: ["fleet.bind_failures", number(data.failed)] }} />
            )
          }
          origin={say(PROMQL.bound)}
        />
        <Figure
          title={t("col.free")}
          figure="capacity.memory_free"
          value={bytes(data.capacity?.free.memory)}
          note={
            data.capacity && (
              <Said
                text="fits.registered"
                numbers={{ all: ["capacity.memory_registered", bytes(data.capacity.total.memory)] }}
              />
            )
          }
          about={<span>{t("about.free")}</span>}
          origin={say(PROMQL.free)}
        />
        <Figure
          title={t("col.largest_short")}
          figure="capacity.largest_memory"
          value={bytes(data.capacity?.largest_memory)}
          origin={say(PROMQL.largest)}
        />
        <Figure
          title={t("scheduling.whole")}
          figure="capacity.whole_gpus"
          note={<OtherUnits counted={data.counted} />}
          value={number(data.capacity?.whole_gpus)}
          origin={say(PROMQL.whole)}
        />
        <Figure
          title={t("col.fragmentation")}
          figure="capacity.fragmentation"
          value={percent(data.capacity?.fragmentation)}
          origin={say(PROMQL.fragmentation)}
        />
      </div>
      <Table
        name="pending"
        label={t("scheduling.pending")}
        rows={data.pending}
        columns={COLUMNS}
        tall
        parts={data.parts}
        source={withQuery("/api/v1/scheduling", { namespace: scope.value })}
        main={MAIN}
        sort="-waited"
        rowKey={(row) => row.pod_uid}
        open={(row) => go(pathOf("scheduling", row.namespace, row.pod), carried())}
        empty={<Empty title={t("empty.pending")} why={t("empty.pending_why")} />}
      />
      <div class="columns">
        <Panel title={t("scheduling.stages")}>
          <Stages data={data} />
        </Panel>
        <Panel title={t("scheduling.codes")}>
          <Codes data={data} />
        </Panel>
        <Panel title={t("node.fits")}>
          <Fits types={data.types} counted={data.counted} />
        </Panel>
        <Panel title={t("scheduling.ended")}>
          <Ended rows={data.ended} />
        </Panel>
      </div>
    </div>
  );
}

const meaningOf = (row: PendingRow): string => row.meaning?.[language.value] ?? named("scheduling", row.code);

const MAIN = ["pod", "waited", "code", "fact", "requests"];
const COLUMNS: readonly Column<PendingRow>[] = [
  {
    key: "pod",
    title: "col.pod",
    long: true,
    value: (row) => `${row.namespace}/${row.pod}`,
    show: (row) => (
      <Link to={pathOf("scheduling", row.namespace, row.pod)}>
        {row.namespace}/{row.pod}
      </Link>
    ),
  },
  {
    key: "waited",
    figure: "pod.waited",
    title: "col.waited",
    part: "cluster",
    promql: PROMQL.pending_oldest,
    value: (row) => row.waited_seconds,
    show: (row) => duration(row.waited_seconds),
    numeric: true,
  },
  {
    key: "code",
    title: "col.why",
    part: "cluster",
    promql: PROMQL.pending,
    value: (row) => row.code,
    show: (row) => <span title={row.code}>{meaningOf(row)}</span>,
    filter: (one) => named("scheduling", one),
    wrap: true,
    width: 220,
  },
  {
    key: "fact",
    title: "col.fact",
    part: "cluster",
    value: (row) => row.fact?.[language.value],
    wrap: true,
    width: 260,
  },
  { key: "requests", title: "col.asks", value: asks, wrap: true, width: 120 },
  { key: "scheduler", title: "col.scheduler", value: (row) => row.scheduler, filter: (one) => one },
  { key: "attempts", title: "col.attempts", figure: "pod.attempts", value: (row) => row.attempts, numeric: true },
  {
    key: "namespace",
    title: "col.namespace",
    value: (row) => row.namespace,
    filter: (one) => one,
    optional: true,
  },
  { key: "owner", title: "col.owner", value: (row) => realOwner(row.owner), optional: true },
  { key: "advice", title: "col.advice", value: (row) => row.advice?.[language.value], wrap: true, optional: true },
];

function Stages({ data }: { data: Scheduling }) {
  if (data.stages.length === 0) return <div class="empty small">{t("empty.stages")}</div>;
  return (
    <Scroll name="stages" rows={data.stages.length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.scheduler")}</th>
            <th scope="col">{t("col.stage")}</th>
            <NumHead title="col.p50" figure="scheduler.stage_p50" />
            <NumHead title="col.p95" figure="scheduler.stage_p95" />
            <NumHead title="col.p99" figure="scheduler.stage_p99" />
            <NumHead title="col.count" figure="scheduler.stage_pods" />
          </tr>
        </thead>
        <tbody>
          {data.stages.map((one) => (
            <tr key={`${one.scheduler}${one.stage}`} data-key={`${one.scheduler}/${one.stage}`}>
              <th scope="row">{one.scheduler}</th>
              <td>{named("step", one.stage)}</td>
              <Num figure="scheduler.stage_p50">{seconds(one.p50)}</Num>
              <Num figure="scheduler.stage_p95">{seconds(one.p95)}</Num>
              <Num figure="scheduler.stage_p99">{seconds(one.p99)}</Num>
              <Num figure="scheduler.stage_pods">{number(one.count)}</Num>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** The API server's times have whole seconds, so a fraction below one would only be the histogram's arithmetic. */
const seconds = (value: number | null): string =>
  value === null ? "–" : value < 1 ? "< 1 s" : value < 10 ? `${number(value, 1)} s` : duration(value);

function Codes({ data }: { data: Scheduling }) {
  const codes = Object.entries(data.by_code).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...codes.map(([, count]) => count), 1);
  return (
    <Scroll name="reasons" rows={codes.length + data.failures.length}>
      {codes.length === 0 && data.failures.length === 0 && <div class="empty small">{t("empty.codes")}</div>}
      {codes.length > 0 && (
        <table class="reasons">
          <thead>
            <tr>
              <th scope="col">{t("col.why")}</th>
              <NumHead title="col.pods" figure="fleet.pending_by_reason" />
            </tr>
          </thead>
          <tbody>
            {codes.map(([code, count]) => (
              <tr key={code} data-key={code}>
                <th scope="row" title={code}>
                  {named("scheduling", code)}
                </th>
                <Num figure="fleet.pending_by_reason">
                  <Meter value={count / most} text={number(count)} />
                </Num>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {data.failures.length > 0 && (
        <table class="reasons">
          <thead>
            <tr>
              <th scope="col">{t("scheduling.failures")}</th>
              <th scope="col">{t("col.scheduler")}</th>
              <NumHead title="col.count" figure="scheduler.failures" />
            </tr>
          </thead>
          <tbody>
            {data.failures.map((one) => (
              <tr key={`${one.scheduler}${one.code}`} data-key={`${one.scheduler}/${one.code}`}>
                <th scope="row" title={one.code}>
                  {named("scheduling", one.code)}
                </th>
                <td>{one.scheduler}</td>
                <Num figure="scheduler.failures">{number(one.count)}</Num>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Scroll>
  );
}

const FIRST = 10; // rows that are shown before more are asked for

function Ended({ rows }: { rows: readonly PendingRow[] }) {
  const [all, setAll] = useState(false);
  if (rows.length === 0) return <div class="empty small">{t("empty.ended")}</div>;
  return (
    <>
      <ul class="attention">
        {(all ? rows : rows.slice(0, FIRST)).map((row) => (
          <li key={row.pod_uid}>
            <Tag tone={TONES[row.outcome]}>{word(`outcome.${row.outcome}`, named("outcome", row.outcome))}</Tag>
            <span class="what">
              <Link to={pathOf("scheduling", row.namespace, row.pod)}>
                {row.namespace}/{row.pod}
              </Link>{" "}
              <span class="muted" data-key={row.pod_uid}>
                <Said text="pending.waited" numbers={{ time: ["pod.waited", duration(row.waited_seconds)] }} />
              </span>{" "}
              {row.outcome !== "scheduled" && <span class="muted">· {meaningOf(row)}</span>}
            </span>
            <span class="muted when">
              <Age at={row.ended} ago />
            </span>
          </li>
        ))}
      </ul>
      {rows.length > FIRST && (
        <button type="button" class="link" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("attention.fewer") : t("attention.all", { n: number(rows.length) })}
        </button>
      )}
    </>
  );
}

const TONES = { scheduled: "good", waiting: "warn", failed: "bad", deleted: "plain" } as const;
