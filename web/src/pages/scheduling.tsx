/** Why pods wait, how long scheduling takes, and what still fits. */
import { useState } from "preact/hooks";
import { useApi, withQuery } from "../api/client";
import type { DecisionList, PendingRow, Scheduling } from "../api/shapes";
import { Decisions, hasExtender } from "../parts/decisions";
import { WhatIfPanel } from "../parts/fit";
import { bytes, duration, number, percent } from "../parts/format";
import { realOwner } from "../parts/owner";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes, part } from "../parts/partnote";
import { Age, definition, Empty, Figure, Link, Meter, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { PROMQL } from "../parts/promql";
import { asks } from "../parts/sentences";
import { type Column, Table } from "../parts/table";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t, word } from "../words";
import { Fits } from "./node";

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
          value={number(data.pending_count)}
          note={data.oldest_seconds === null ? "" : t("scheduling.oldest", { time: duration(data.oldest_seconds) })}
          about={definition(t("about.pending"), say(PROMQL.pending))}
          tone={data.pending_count ? "warn" : "plain"}
        />
        <Figure
          title={t("scheduling.bound")}
          value={number(data.bound)}
          note={data.failed === null ? "" : t("scheduling.failed", { n: number(data.failed) })}
          about={definition(t("about.bound"), say(PROMQL.bound))}
        />
        <Figure
          title={t("col.free")}
          value={bytes(data.capacity?.free.memory)}
          note={data.capacity ? t("of", { all: bytes(data.capacity.total.memory) }) : ""}
          about={definition(t("about.free"), say(PROMQL.free))}
        />
        <Figure
          title={t("col.largest_short")}
          value={bytes(data.capacity?.largest_memory)}
          about={definition(t("about.largest"), say(PROMQL.largest))}
        />
        <Figure
          title={t("col.whole")}
          value={number(data.capacity?.whole_gpus)}
          about={definition(t("about.whole"), say(PROMQL.whole))}
        />
        <Figure
          title={t("col.fragmentation")}
          value={percent(data.capacity?.fragmentation)}
          about={definition(t("about.fragmentation"), say(PROMQL.fragmentation))}
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
        sort="-waited"
        rowKey={(row) => row.pod_uid}
        open={(row) => go(pathOf("scheduling", row.namespace, row.pod), carried())}
        empty={<Empty title={t("empty.pending")} why={t("empty.pending_why")} />}
      />
      <div class="columns">
        <div class="half">
          <Panel title={t("scheduling.stages")}>
            <Stages data={data} />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("scheduling.codes")}>
            <Codes data={data} />
          </Panel>
        </div>
        <Panel title={t("node.fits")}>
          <Fits types={data.types} />
        </Panel>
        <Panel title={t("scheduling.ended")}>
          <Ended rows={data.ended} />
        </Panel>
      </div>
    </div>
  );
}

const meaningOf = (row: PendingRow): string => row.meaning?.[language.value] ?? named("scheduling", row.code);

const COLUMNS: readonly Column<PendingRow>[] = [
  {
    key: "pod",
    title: "col.pod",
    value: (row) => `${row.namespace}/${row.pod}`,
    show: (row) => (
      <Link to={pathOf("scheduling", row.namespace, row.pod)}>
        {row.namespace}/{row.pod}
      </Link>
    ),
  },
  {
    key: "waited",
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
  { key: "attempts", title: "col.attempts", value: (row) => row.attempts, numeric: true },
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
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.scheduler")}</th>
            <th scope="col">{t("col.stage")}</th>
            <th scope="col" class="num">
              p50
            </th>
            <th scope="col" class="num">
              p95
            </th>
            <th scope="col" class="num">
              p99
            </th>
            <th scope="col" class="num">
              {t("col.count")}
            </th>
          </tr>
        </thead>
        <tbody>
          {data.stages.map((one) => (
            <tr key={`${one.scheduler}${one.stage}`}>
              <th scope="row">{one.scheduler}</th>
              <td>{named("step", one.stage)}</td>
              <td class="num">{seconds(one.p50)}</td>
              <td class="num">{seconds(one.p95)}</td>
              <td class="num">{seconds(one.p99)}</td>
              <td class="num">{number(one.count)}</td>
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
    <Scroll>
      {codes.length === 0 && data.failures.length === 0 && <div class="empty small">{t("empty.codes")}</div>}
      {codes.length > 0 && (
        <table class="reasons">
          <thead>
            <tr>
              <th scope="col">{t("col.why")}</th>
              <th scope="col" class="num">
                {t("col.pods")}
              </th>
            </tr>
          </thead>
          <tbody>
            {codes.map(([code, count]) => (
              <tr key={code}>
                <th scope="row" title={code}>
                  {named("scheduling", code)}
                </th>
                <td class="num">
                  <Meter value={count / most} text={number(count)} />
                </td>
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
              <th scope="col" class="num">
                {t("col.count")}
              </th>
            </tr>
          </thead>
          <tbody>
            {data.failures.map((one) => (
              <tr key={`${one.scheduler}${one.code}`}>
                <th scope="row" title={one.code}>
                  {named("scheduling", one.code)}
                </th>
                <td>{one.scheduler}</td>
                <td class="num">{number(one.count)}</td>
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
              <span class="muted">{t("pending.waited", { time: duration(row.waited_seconds) })}</span>{" "}
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
