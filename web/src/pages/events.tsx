/** What happened, newest first: changed verdicts, XIDs, health, targets, pods that waited, settings. */
import { useApi } from "../api/client";
import type { Timeline, TimelineEvent } from "../api/shapes";
import { sentence } from "../parts/eventlist";
import { moment } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, Empty, Link, Shown, Tag } from "../parts/pieces";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { pathOf } from "../state/url";
import { t, word } from "../words";
import { Subject } from "./overview";

export function EventsPage() {
  const found = useApi<Timeline>("/api/v1/timeline", { namespace: scope.value, limit: 1000 });
  return (
    <>
      <PageHead title={t("nav.events")} about={t("events.about")} />
      <Shown of={found} rows={12}>
        {(data) => (
          <>
            <PartNotes parts={data.parts} names={["analysis", "cluster", "history"]} />
            {data.since && <p class="muted">{t("events.since", { time: moment(data.since) })}</p>}
            <Table
              name="events"
              label={t("nav.events")}
              rows={data.rows}
              columns={COLUMNS}
              sort="-at"
              rowKey={(row) => row.id}
              empty={<Empty title={t("empty.events")} why={t("empty.events_why")} />}
            />
          </>
        )}
      </Shown>
    </>
  );
}

const COLUMNS: readonly Column<TimelineEvent>[] = [
  { key: "at", title: "col.when", value: (row) => row.at, show: (row) => <Age at={row.at} ago />, width: 130 },
  {
    key: "kind",
    title: "col.kind",
    value: (row) => row.kind,
    show: (row) => <Tag>{t(`event.${row.kind}`)}</Tag>,
    filter: (one) => word(`event.${one}`, one),
  },
  {
    key: "subject",
    title: "col.what",
    value: (row) =>
      [row.namespace && row.pod ? `${row.namespace}/${row.pod}` : "", row.gpu_id ?? ""].filter(Boolean).join(" "),
    show: (row) => <Subject row={row} />,
    width: 260,
  },
  { key: "change", title: "col.change", value: sentence },
  { key: "namespace", title: "col.namespace", value: (row) => row.namespace, filter: (one) => one, optional: true },
  {
    key: "node",
    title: "col.node",
    value: (row) => row.node,
    show: (row) => (row.node ? <Link to={pathOf("nodes", row.node)}>{row.node}</Link> : "–"),
    filter: (one) => one,
  },
  { key: "code", title: "col.code", value: (row) => row.code, filter: (one) => one, optional: true },
];
