/** Why pods wait, how long scheduling takes, and what still fits. */
import { useApi } from "../api/client";
import type { PendingRow, Scheduling } from "../api/shapes";
import { bytes, duration, number, percent } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { current, PartNotes } from "../parts/partnote";
import { Age, definition, Empty, Figure, Link, Meter, Panel, Shown, Tag } from "../parts/pieces";
import { type Column, Table } from "../parts/table";
import { language } from "../state/preferences";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t } from "../words";
import { Fits } from "./node";

export function SchedulingPage() {
  const found = useApi<Scheduling>("/api/v1/scheduling", { namespace: scope.value });
  return (
    <>
      <PageHead title={t("nav.scheduling")} about={t("scheduling.about")} />
      <Shown of={found} rows={12}>
        {(data) => <All data={data} />}
      </Shown>
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
        />
      </>
    );
  }
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["cluster"]} />
      <div class="figures">
        <Figure
          title={t("figure.pending")}
          value={number(data.pending_count)}
          note={data.oldest_seconds === null ? "" : t("scheduling.oldest", { time: duration(data.oldest_seconds) })}
          about={definition(t("about.pending"), "sum(vgpuscope_pending_pods)")}
          tone={data.pending_count ? "warn" : "plain"}
        />
        <Figure
          title={t("scheduling.bound")}
          value={number(data.bound)}
          note={data.failed === null ? "" : t("scheduling.failed", { n: number(data.failed) })}
          about={definition(t("about.bound"))}
        />
        <Figure
          title={t("col.free")}
          value={bytes(data.capacity?.free.memory)}
          note={data.capacity ? t("of", { all: bytes(data.capacity.total.memory) }) : ""}
          about={definition(t("about.free"))}
        />
        <Figure
          title={t("col.largest")}
          value={bytes(data.capacity?.largest_memory)}
          about={definition(t("about.largest"))}
        />
        <Figure title={t("col.whole")} value={number(data.capacity?.whole_gpus)} about={definition(t("about.whole"))} />
        <Figure
          title={t("col.fragmentation")}
          value={percent(data.capacity?.fragmentation)}
          about={definition(t("about.fragmentation"))}
        />
      </div>
      <Table
        name="pending"
        label={t("scheduling.pending")}
        rows={data.pending}
        columns={COLUMNS}
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
          <Fits types={data.types} data={data} />
        </Panel>
        <Panel title={t("scheduling.ended")}>
          <Ended rows={data.ended} />
        </Panel>
      </div>
    </div>
  );
}

export const asks = (row: PendingRow): string =>
  [
    ...Object.entries(row.requests).map(([name, count]) => `${number(count)} ${name.replace(/^[^/]*\//, "")}`),
    ...row.claims,
  ].join(", ");

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
    width: 200,
  },
  {
    key: "waited",
    title: "col.waited",
    value: (row) => row.waited_seconds,
    show: (row) => duration(row.waited_seconds),
    numeric: true,
  },
  {
    key: "code",
    title: "col.why",
    value: (row) => row.code,
    show: (row) => (
      <>
        <Tag tone="warn" title={row.code}>
          {row.meaning?.[language.value] ?? row.code}
        </Tag>
      </>
    ),
    filter: (one) => named("scheduling", one),
    width: 260,
  },
  { key: "fact", title: "col.fact", value: (row) => row.fact, show: (row) => row.fact ?? "–" },
  { key: "requests", title: "col.asks", value: asks },
  { key: "namespace", title: "col.namespace", value: (row) => row.namespace, filter: (one) => one, optional: true },
  { key: "owner", title: "col.owner", value: (row) => row.owner, optional: true },
  { key: "scheduler", title: "col.scheduler", value: (row) => row.scheduler, filter: (one) => one },
  { key: "attempts", title: "col.attempts", value: (row) => row.attempts, numeric: true },
  { key: "advice", title: "col.advice", value: (row) => row.advice?.[language.value], optional: true },
];

function Stages({ data }: { data: Scheduling }) {
  if (data.stages.length === 0) return <div class="empty small">{t("empty.stages")}</div>;
  return (
    <div class="scroll">
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
    </div>
  );
}

const seconds = (value: number | null): string =>
  value === null ? "–" : value < 10 ? `${number(value, 2)} s` : duration(value);

function Codes({ data }: { data: Scheduling }) {
  const codes = Object.entries(data.by_code).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...codes.map(([, count]) => count), 1);
  return (
    <div class="scroll">
      {codes.length === 0 && data.failures.length === 0 && <div class="empty small">{t("empty.codes")}</div>}
      {codes.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.why")}</th>
              <th scope="col" class="num">
                {t("scheduling.waiting_now")}
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
        <table>
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
    </div>
  );
}

function Ended({ rows }: { rows: readonly PendingRow[] }) {
  if (rows.length === 0) return <div class="empty small">{t("empty.ended")}</div>;
  return (
    <ul class="attention">
      {rows.slice(0, 30).map((row) => (
        <li key={row.pod_uid}>
          <Tag tone={row.outcome === "scheduled" ? "good" : "bad"}>{named("outcome", row.outcome)}</Tag>
          <span class="what">
            <Link to={pathOf("scheduling", row.namespace, row.pod)}>
              {row.namespace}/{row.pod}
            </Link>{" "}
            <span class="muted">{row.meaning?.[language.value] ?? row.code}</span>
          </span>
          <span class="num">{duration(row.waited_seconds)}</span>
          <span class="muted hide-small">
            <Age at={row.ended} ago />
          </span>
        </li>
      ))}
    </ul>
  );
}
