/** What happened, newest first: changed classes, XIDs, health, targets, pods that waited, settings. */
import { useApi, withQuery } from "../api/client";
import type { Timeline, TimelineEvent } from "../api/shapes";
import { EventTag } from "../parts/eventlist";
import { moment } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { PartNotes } from "../parts/partnote";
import { Age, Empty, Link, Shown } from "../parts/pieces";
import { eventText } from "../parts/sentences";
import { Subject } from "../parts/subject";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { pathOf } from "../state/url";
import { t, word } from "../words";

export function EventsPage() {
  const query = { namespace: scope.value, limit: 1000 };
  const found = useApi<Timeline>("/api/v1/timeline", query);
  const since = found.data?.since;
  return (
    <>
      <PageHead
        title={t("nav.events")}
        about={`${t("events.about")}${since ? ` ${t("events.since", { time: moment(since) })}` : ""}`}
      />
      <Shown of={found} rows={12}>
        {(data) => (
          <div class="stack tight">
            <PartNotes parts={data.parts} names={["analysis", "cluster", "history"]} />
            <Table
              name="events"
              label={t("nav.events")}
              rows={data.rows}
              columns={COLUMNS}
              main={MAIN}
              sort="-at"
              rowKey={(row) => row.id}
              source={withQuery("/api/v1/timeline", query)}
              empty={<Empty title={t("empty.events")} why={t("empty.events_why")} />}
            />
          </div>
        )}
      </Shown>
    </>
  );
}

const subjectOf = (row: TimelineEvent): string =>
  [row.namespace && row.pod ? `${row.namespace}/${row.pod}` : "", row.gpu_id ?? ""].filter(Boolean).join(" ");

const MAIN = ["at", "kind", "change", "subject"];
const COLUMNS: readonly Column<TimelineEvent>[] = [
  { key: "at", title: "col.when", value: (row) => row.at, show: (row) => <Age at={row.at} ago />, width: 110 },
  {
    key: "kind",
    title: "col.kind",
    value: (row) => row.kind,
    show: (row) => <EventTag row={row} />,
    filter: (one) => word(`event.${one}`, one),
  },
  {
    key: "change",
    title: "col.change",
    value: eventText,
    show: (row) => <span title={eventText(row)}>{eventText(row)}</span>,
    wrap: true,
    width: 300,
  },
  {
    key: "subject",
    title: "col.what",
    long: true,
    value: subjectOf,
    show: (row) => <Subject row={row} node={false} />,
  },
  {
    key: "node",
    title: "col.node",
    value: (row) => row.node,
    show: (row) => (row.node ? <Link to={pathOf("nodes", row.node)}>{row.node}</Link> : <span class="muted">–</span>),
    filter: (one) => one || t("value.none"),
  },
  {
    key: "namespace",
    title: "col.namespace",
    value: (row) => row.namespace,
    filter: (one) => one || t("value.none"),
    optional: true,
  },
  { key: "code", title: "col.code", value: (row) => row.code, filter: (one) => one || t("value.none"), optional: true },
];
