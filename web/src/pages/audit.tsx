/** Every step of taking GPUs back, newest first, in pages. Entries are never changed. */
import { useState } from "preact/hooks";
import { get, useApi, withQuery } from "../api/client";
import type { AuditEntry, CaseRow, AuditPage as Entries } from "../api/shapes";
import { actorName, brakeText, reasonName, settingOf } from "../parts/cases";
import { download } from "../parts/csv";
import { ageOf, duration, logMoment, moment, momentWithZone, number, shortId } from "../parts/format";
import { Icon } from "../parts/icon";
import { PageHead } from "../parts/pagehead";
import { Copy, Empty, Link } from "../parts/pieces";
import { failureText, ReclaimShown } from "../parts/reclaim";
import { type Column, Table } from "../parts/table";
import { now } from "../state/clock";
import { scope } from "../state/scope";
import { pathOf, place, setQuery } from "../state/url";
import { t, word } from "../words";

const PAGE = 200; // entries
const MOST = 1000; // entries of one answer, for a download

export function AuditPage() {
  const asked = place.value.query;
  const chosen = asked.get("case");
  const before = asked.get("before");
  const query = { id: chosen, namespace: scope.value, before, limit: PAGE };
  const found = useApi<Entries>("/api/v1/audit", query);
  return (
    <>
      <PageHead title={t("nav.audit")} about={t("audit.about")}>
        <Download query={{ id: chosen, namespace: scope.value }} />
      </PageHead>
      <ReclaimShown of={found} rows={12}>
        {(data) => (
          <div class="stack tight">
            {chosen && (
              <p class="notice">
                <span class="mono">{t("audit.case_of", { id: shortId(chosen) })}</span>
                <button
                  type="button"
                  class="button"
                  onClick={() => setQuery({ case: null, before: null }, { replace: false })}
                >
                  {t("audit.all")}
                </button>
              </p>
            )}
            <AuditTable entries={data.entries} source={withQuery("/api/v1/audit", query)} />
            <Pages before={before} next={data.next_before} />
          </div>
        )}
      </ReclaimShown>
    </>
  );
}

function Pages({ before, next }: { before: string | null; next: number | null }) {
  if (!before && next === null) return null;
  const turn = (to: number | null): void => {
    setQuery({ before: to === null ? null : String(to) }, { replace: false });
    scrollTo(0, 0);
  };
  return (
    <div class="case-actions">
      <button type="button" class="button" disabled={!before} onClick={() => turn(null)}>
        {t("audit.newest")}
      </button>
      <button type="button" class="button" disabled={next === null} onClick={() => turn(next)}>
        {t("audit.older")}
      </button>
    </div>
  );
}

/** All entries as one file, read page by page; one line of JSON for each. */
function Download({ query }: { query: { id: string | null; namespace: readonly string[] } }) {
  const [read, setRead] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const start = async (): Promise<void> => {
    setError(null);
    try {
      download("audit.jsonl", await allEntries(query, setRead), "application/x-ndjson");
    } catch (failure) {
      setError(failureText(failure));
    } finally {
      setRead(null);
    }
  };
  return (
    <div class="case-actions">
      {error && (
        <p class="notice bad" role="alert">
          {error}
        </p>
      )}
      <button type="button" class="button" disabled={read !== null} onClick={() => void start()}>
        <Icon name="download" />
        {read === null ? t("audit.export_all") : t("audit.exporting", { n: number(read) })}
      </button>
    </div>
  );
}

type Asked = { readonly id: string | null; readonly namespace: readonly string[] };

/** Every entry, oldest first, as the log was written. */
export async function allEntries(query: Asked, progress: (read: number) => void): Promise<string> {
  const lines: string[] = [];
  let before: number | null = null;
  do {
    const page: Entries = await get<Entries>("/api/v1/audit", { ...query, before, limit: MOST });
    lines.push(...page.entries.map((entry) => JSON.stringify(entry)));
    progress(lines.length);
    before = page.next_before;
  } while (before !== null);
  return lines.reverse().join("\n").concat("\n");
}

export function AuditTable({
  entries,
  source,
  plain = false,
}: {
  entries: readonly AuditEntry[];
  source?: string;
  plain?: boolean;
}) {
  return (
    <Table
      name="audit"
      label={t("nav.audit")}
      rows={entries}
      columns={plain ? OF_ONE_CASE : COLUMNS}
      main={MAIN}
      sort="-number"
      tall // a reason names each brake with its setting
      rowKey={(row) => String(row.number)}
      empty={<Empty title={t("empty.audit")} why={t("empty.audit_why")} />}
      plain={plain}
      {...(source ? { source } : {})}
    />
  );
}

const stateText = (state: string): string => (state ? word(`case_state.${state}`, state) : "");
const whatText = (row: AuditEntry): string => word(`audit.what.${row.what}`, row.what);
/** A step that leaves a case in its state changes nothing: the state is said once. */
const changeText = (row: AuditEntry): string =>
  [...new Set([row.before, row.after])].map(stateText).filter(Boolean).join(" → ");

/** The reason; of a brake, with the setting that decides it. */
export function whyText(row: AuditEntry): string {
  if (!["moved", "held", "lifted"].includes(row.what)) return reasonName(row.reason);
  const brakes = new Map(brakesIn(row.detail).map((one) => [one.brake as string, one]));
  const moved = row.what === "moved";
  const codes = moved ? (row.after === "candidate" ? [...brakes.keys()] : []) : row.reason.split(" ");
  const held = codes.map((code) => {
    const found = brakes.get(code);
    const setting = found && settingOf(found);
    return setting ? `${brakeText(code)} ${setting}` : brakeText(code);
  });
  return [...(moved ? [reasonName(row.reason)] : []), ...held].join(t("semicolon"));
}

function brakesIn(detail: string): CaseRow["brakes"] {
  try {
    return (JSON.parse(detail || "{}") as { brakes?: CaseRow["brakes"] }).brakes ?? [];
  } catch {
    return []; // of another release
  }
}

const Moment = ({ at }: { at: number }) => (
  <time title={`${momentWithZone(at)}\n${t("ago", { time: duration(ageOf(at, now.value)) })}`}>{logMoment(at)}</time>
);
const NOTHING = <span class="muted">–</span>;

const MAIN = ["number", "actor", "what", "pod", "change", "reason"];
const COLUMNS: readonly Column<AuditEntry>[] = [
  {
    key: "number",
    title: "col.when",
    value: (row) => row.number,
    show: (row) => <Moment at={row.at} />,
  },
  {
    key: "actor",
    title: "col.actor",
    long: true,
    value: (row) => row.actor,
    show: (row) => actorName(row.actor),
    filter: actorName,
  },
  {
    key: "what",
    title: "col.step",
    value: (row) => row.what,
    show: whatText,
    filter: (one) => word(`audit.what.${one}`, one),
  },
  {
    key: "pod",
    title: "col.workload",
    long: true,
    value: (row) => (row.pod ? `${row.namespace}/${row.pod}` : ""),
    show: (row) =>
      row.case_id ? (
        <Link to={pathOf("idle", row.case_id)}>
          {row.namespace}/{row.pod}
        </Link>
      ) : (
        NOTHING
      ),
  },
  {
    key: "change",
    title: "col.change",
    value: (row) => `${row.before} → ${row.after}`,
    show: (row) => changeText(row) || NOTHING,
    wrap: true,
    width: 148, // two lines hold any two states
  },
  {
    key: "reason",
    title: "col.reason",
    value: (row) => row.reason,
    show: (row) => (row.reason ? <span title={row.reason}>{whyText(row)}</span> : NOTHING),
    wrap: true,
    width: 350,
  },
  {
    key: "detail",
    title: "col.details",
    value: (row) => row.detail,
    show: (row) => (row.detail ? <Copy text={row.detail} label={t("col.details")} /> : NOTHING),
  },
  {
    key: "namespace",
    title: "col.namespace",
    value: (row) => row.namespace,
    filter: (one) => one || t("value.none"),
    optional: true,
  },
  { key: "case_id", title: "audit.case", value: (row) => row.case_id, optional: true },
  { key: "at", title: "col.created", value: (row) => row.at, show: (row) => moment(row.at), optional: true },
];
const OF_ONE_CASE = COLUMNS.filter((column) => column.key !== "pod");
