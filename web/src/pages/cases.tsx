/** The cases of taking GPUs back, one case, and the policy in effect. */
import { useMemo } from "preact/hooks";
import { isForbidden, isMissing, type Loaded, useApi, withQuery } from "../api/client";
import type { AuditPage, CaseRow, NoticesBody, PolicyBody, ReclaimList } from "../api/shapes";
import {
  actorName,
  brakeText,
  type Fault,
  faultOf,
  idleSince,
  isBeyondRestore,
  isOpen,
  reasonName,
  stateKey,
} from "../parts/cases";
import { idleForColumn, namespaceColumn, ownerColumn } from "../parts/columns";
import { Num, NumHead, Said, Value } from "../parts/figures";
import { duration, moment, number, percent, shortId, shortModel, shortMoment } from "../parts/format";
import { OpinionBox, opinionOf } from "../parts/opinion";
import { PageHead } from "../parts/pagehead";
import { Age, ClassBadge, Copy, Empty, Facts, Link, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import {
  Acting,
  Brakes,
  CASES,
  CaseActions,
  CaseTag,
  Countdown,
  Mode,
  ReclaimShown,
  Signals,
  stoppedText,
  WhyNoActions,
} from "../parts/reclaim";
import { type Column, Table } from "../parts/table";
import { scope } from "../state/scope";
import { may, restricted } from "../state/session";
import { carried, go, pathOf } from "../state/url";
import { type Key, t, word } from "../words";
import { AuditTable } from "./audit";

// ── all cases ─────────────────────────────────────────────────────────────────────────────────────────────────────

interface Props {
  readonly cases: Loaded<ReclaimList>;
  readonly policy: Loaded<PolicyBody>;
}

export function CasesView({ cases, policy }: Props) {
  return (
    <Shown of={cases} rows={8}>
      {(data) => <Cases data={data} policy={policy.data ?? null} wanted={scope.value} />}
    </Shown>
  );
}

interface CasesProps {
  readonly data: ReclaimList;
  readonly policy: PolicyBody | null;
  readonly wanted: readonly string[]; // namespaces; none: all
}

function Cases({ data, policy, wanted }: CasesProps) {
  const rows = useMemo(
    () => (data.cases as readonly CaseRow[]).filter((row) => wanted.length === 0 || wanted.includes(row.namespace)),
    [data, wanted],
  );
  const needed = policy?.confirmations ?? null;
  const acts = may("operate");
  const dry = data.mode !== "live";
  const columns = useMemo(() => columnsFor(needed, acts, dry), [needed, acts, dry]);
  return (
    <div class="stack tight">
      <WhyNoActions />
      <Table
        name="cases"
        label={t("idle_view.cases")}
        rows={rows}
        columns={columns}
        main={MAIN}
        sort="open"
        rowKey={(row) => row.id}
        open={(row) => go(pathOf("idle", row.id), carried())}
        empty={<Empty title={t("empty.cases")} why={t("empty.cases_why")} doctor />}
        source={withQuery("/api/v1/reclaim", CASES)}
      />
    </div>
  );
}

const MAIN = ["pod", "state", "next", "held_by", "actions"];
const NONE = <span class="muted">–</span>;

function columnsFor(needed: number | null, acts: boolean, dry: boolean): readonly Column<CaseRow>[] {
  const actions: Column<CaseRow> = {
    key: "actions",
    title: "case.act",
    value: () => "",
    show: (row) => <CaseActions row={row} dry={dry} />,
  };
  return [
    {
      key: "pod",
      title: "col.workload",
      long: true,
      value: (row) => `${row.namespace}/${row.pod}`,
      show: (row) => (
        <Link to={pathOf("idle", row.id)}>
          {row.namespace}/{row.pod}
        </Link>
      ),
    },
    {
      key: "state",
      title: "col.state",
      about: "about.case",
      value: stateKey,
      show: (row) => <CaseTag row={row} />,
      filter: (one) => word(`case_state.${one}`, one),
    },
    {
      key: "next",
      title: "col.next",
      about: "about.next",
      value: (row) => row.next_at,
      show: (row) => <Countdown row={row} needed={needed} dry={dry} />,
      width: 150,
    },
    {
      key: "held_by",
      title: "col.held_by",
      about: "about.held_by",
      value: (row) => [...row.held_by],
      show: (row) => <Brakes row={row} />,
      wrap: true,
      width: 240,
      filter: (one) => (one ? brakeText(one) : t("value.none")),
    },
    ...(acts ? [actions] : []),
    idleForColumn("case.idle_seconds", idleSince),
    {
      key: "gpus",
      figure: "case.gpus",
      title: "col.gpus",
      value: (row) => row.gpu_ids.length,
      show: (row) => number(row.gpu_ids.length),
      numeric: true,
    },
    { key: "reason", title: "col.reason", value: (row) => (row.reason ? reasonName(row.reason) : "") },
    {
      key: "since",
      title: "case.since",
      value: (row) => row.since,
      show: (row) => <Age at={row.since} />,
      numeric: true,
      names: "moment",
      oldestFirst: true,
    },
    { key: "by", title: "case.by", value: (row) => row.by, show: (row) => (row.by ? actorName(row.by) : NONE) },
    ownerColumn((row) => row.owner, { optional: true }),
    namespaceColumn((row) => row.namespace),
    // open cases first, then the newest change
    {
      key: "open",
      title: "cases.open",
      value: (row) => (isOpen(row) ? 0 : 1) * 1e12 - row.since,
      show: (row) => t(isOpen(row) ? "answer.yes" : "answer.no"),
      optional: true,
    },
  ];
}

// ── one case ──────────────────────────────────────────────────────────────────────────────────────────────────────

export function CasePage({ names }: { names: string[] }) {
  const id = names[0]!;
  const cases = useApi<ReclaimList>("/api/v1/reclaim", CASES);
  const policy = useApi<PolicyBody>("/api/v1/reclaim/policy");
  const steps = useApi<AuditPage>("/api/v1/audit", { id, limit: 50 });
  const row = (cases.data?.cases as readonly CaseRow[] | undefined)?.find((one) => one.id === id);
  return (
    <>
      <PageHead
        title={row ? row.pod : shortId(id)}
        about={
          row && (
            <>
              {t("col.namespace")} <Link to={pathOf("namespaces", row.namespace)}>{row.namespace}</Link>
            </>
          )
        }
        back={["idle", "nav.idle"]}
      >
        {row && <CaseActions row={row} dry={cases.data?.mode !== "live"} />}
      </PageHead>
      <ReclaimShown of={cases} rows={10}>
        {(data) => (
          <div class="stack">
            <Acting />
            <Mode data={data} policy={policy.data ?? null} />
            {row ? (
              <OneCase
                row={row}
                needed={policy.data?.confirmations ?? null}
                dry={data.mode !== "live"}
                fault={faultOf(row, steps.data?.entries ?? [])}
              />
            ) : (
              <Empty title={t("empty.case")} why={t("empty.case_why")} />
            )}
            <Steps id={id} found={steps} />
          </div>
        )}
      </ReclaimShown>
    </>
  );
}

interface OneCaseProps {
  readonly row: CaseRow;
  readonly needed: number | null;
  readonly dry: boolean;
  readonly fault: Fault | null;
}

function OneCase({ row, needed, dry, fault }: OneCaseProps) {
  return (
    <>
      {fault && (
        <p class="notice bad">
          {t(fault.key)} {fault.reason}
        </p>
      )}
      <div class="tags">
        <CaseTag row={row} />
        <span>{t(`case_about.${stateKey(row)}` as Key)}</span>
      </div>
      {isBeyondRestore(row) && <p class="muted small">{t("case.beyond_restore")}</p>}
      <WhyNoActions />
      <div class="columns">
        <div class="half">
          <Panel title={t("case.facts")}>
            <Facts
              rows={[
                ["col.next", <Countdown key="next" row={row} needed={needed} dry={dry} />],
                ["case.since", <Age key="since" at={row.since} />],
                ["col.reason", row.reason ? reasonName(row.reason) : null],
                ["case.by", row.by && actorName(row.by)],
                [
                  "case.confirmations",
                  <Said
                    key="windows"
                    text="case_next.windows"
                    numbers={{ n: ["case.confirmations", row.confirmations] }}
                    values={{ all: needed ?? "?" }}
                  />,
                ],
                ["col.idle_for", <Age key="idle" at={idleSince(row)} />, undefined, "case.idle_seconds"],
                ["case.notified_at", row.notified_at === null ? null : moment(row.notified_at)],
                [
                  row.dry_run ? "case.decided_at" : "case.acted_at",
                  row.acted_at === null ? null : moment(row.acted_at),
                ],
                ["col.owner", row.owner],
                ...(row.target ? [["case.target", row.target] as const] : []),
                [
                  "col.workload",
                  <Link key="pod" to={pathOf("workloads", row.namespace, row.pod)}>
                    {row.namespace}/{row.pod}
                  </Link>,
                ],
                [
                  "case.uid",
                  row.pod_uid && (
                    <span class="mono">
                      {shortId(row.pod_uid)} <Copy text={row.pod_uid} />
                    </span>
                  ),
                ],
              ]}
            />
          </Panel>
        </div>
        <div class="half">
          <Panel title={t("case.held")}>
            <Brakes row={row} all />
            <Signals row={row} />
            <OpinionBox opinion={opinionOf(row)} holds={row.held_by.includes("model_veto")} />
          </Panel>
        </div>
        <Panel title={t("case.evidence")} note={<Value figure="list.rows">{number(row.evidence.length)}</Value>}>
          <Evidence row={row} />
        </Panel>
      </div>
    </>
  );
}

function Evidence({ row }: { row: CaseRow }) {
  return (
    <Scroll name="evidence" rows={row.evidence.length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.gpu")}</th>
            <th scope="col">{t("col.model")}</th>
            <th scope="col">{t("col.verdict")}</th>
            <th scope="col">{t("col.class")}</th>
            <NumHead title="col.score" figure="tenant.score" />
            <NumHead title="col.coverage" figure="tenant.coverage" />
            <th scope="col" class="num" data-names="moment">
              {t("case.idle_since")}
            </th>
          </tr>
        </thead>
        <tbody>
          {row.evidence.map((share) => (
            <tr key={share.gpu_id + share.mig} data-key={share.gpu_id + (share.mig ? `/${share.mig}` : "")}>
              <th scope="row">
                <Link to={pathOf("gpus", share.gpu_id)} {...(share.mig ? { query: { mig: share.mig } } : {})}>
                  {share.hostname ? `${share.hostname} · ` : ""}
                  {shortId(share.mig || share.gpu_id)}
                </Link>
              </th>
              <td>{share.model ? shortModel(share.model) : "–"}</td>
              <td>{t(`verdict.${share.verdict}`)}</td>
              <td>
                <ClassBadge name={share.use_class} />
              </td>
              <Num figure="tenant.score">{number(share.score, 1)}</Num>
              <Num figure="tenant.coverage">{percent(share.coverage)}</Num>
              <td class="num">{shortMoment(share.idle_since)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Steps({ id, found }: { id: string; found: Loaded<AuditPage> }) {
  return (
    <Panel
      title={t("case.steps")}
      actions={
        <Link to="audit" query={{ case: id }}>
          {t("see_all")}
        </Link>
      }
    >
      <Shown of={found} rows={4}>
        {(data) => <AuditTable entries={data.entries} plain />}
      </Shown>
    </Panel>
  );
}

// ── the policy ────────────────────────────────────────────────────────────────────────────────────────────────────

export function PolicyView({ policy }: { policy: Loaded<PolicyBody> }) {
  return (
    <Shown of={policy} rows={10}>
      {(data) => (
        <div class="columns">
          <div class="half">
            <Panel title={t("policy.title")}>
              <Facts rows={whenRows(data)} />
              <p class="muted small">{t("policy.about")}</p>
            </Panel>
          </div>
          <div class="half">
            <Panel title={t("policy.brakes")}>
              <Facts rows={brakeRows(data)} />
            </Panel>
          </div>
          <Notices />
          <Panel title={t("policy.without")} note={<Value figure="list.rows">{number(data.without.length)}</Value>}>
            <ul class="sentences">
              {data.without.map((sentence, at) => (
                <li key={sentence}>{withoutText(sentence, data.without_codes?.[at])}</li>
              ))}
            </ul>
          </Panel>
        </div>
      )}
    </Shown>
  );
}

const CHANNEL_TONES = { works: "good", fails: "bad", unused: "plain" } as const;

/** Who is told, and whether the messages arrive. An older analyzer does not say, nor does any to a user of some namespaces. */
function Notices() {
  const found = useApi<NoticesBody>(restricted.value ? null : "/api/v1/notices");
  if (restricted.value || isMissing(found) || isForbidden(found)) return null;
  return (
    <Panel
      title={t("channels.title")}
      note={<Value figure="list.rows">{number(found.data?.channels.length ?? null)}</Value>}
    >
      <Shown of={found} rows={2}>
        {(data) => <Channels data={data} />}
      </Shown>
    </Panel>
  );
}

function Channels({ data }: { data: NoticesBody }) {
  if (data.channels.length === 0) return <p class="muted">{t("without.channel")}</p>;
  return (
    <>
      <Scroll>
        <table>
          <thead>
            <tr>
              {CHANNEL_COLUMNS.map((one) => (
                <th key={one} scope="col">
                  {t(one)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.channels.map((one) => (
              <tr key={one.name} data-key={one.name}>
                <th scope="row">{one.name}</th>
                <td>{one.service ?? "–"}</td>
                <td>
                  <Tag tone={CHANNEL_TONES[one.state]}>{t(`channels.${one.state}`)}</Tag>
                </td>
                <td>
                  <Value figure="service.notices_delivered">{number(one.delivered)}</Value>{" "}
                  {one.delivered_at && <Age at={one.delivered_at} ago />}
                </td>
                <td>
                  <Value figure="service.notices_failed">{number(one.failed)}</Value>{" "}
                  {one.failed_at && <Age at={one.failed_at} ago />}
                </td>
                <td>{one.error ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <p class="muted small">{t(data.links ? "channels.links" : "channels.no_links")}</p>
    </>
  );
}

const CHANNEL_COLUMNS = [
  "channels.channel",
  "channels.service",
  "col.state",
  "channels.delivered",
  "channels.failed",
  "channels.error",
] as const;

type Rows = Parameters<typeof Facts>[0]["rows"];
const answer = (yes: boolean): string => t(yes ? "answer.yes" : "answer.no");

/** A notice that nobody gets must not look like one. */
function notifyText(data: PolicyBody): string {
  const nobody = data.notify_first && data.without_codes?.includes("channel");
  return nobody ? t("policy.notify_nobody") : answer(data.notify_first);
}

function whenRows(data: PolicyBody): Rows {
  return [
    [
      "policy.mode",
      <Tag key="mode" tone={data.mode === "live" ? "warn" : "plain"}>
        {word(`policy_mode.${data.mode}`, data.mode)}
      </Tag>,
    ],
    ["policy.action", t(`policy_action.${data.action}`)],
    ["policy.confirmations", number(data.confirmations)],
    ["policy.min_coverage", percent(data.min_coverage)],
    ["policy.notify_first", notifyText(data)],
    ["policy.grace", duration(data.grace)],
    ["policy.approval", answer(data.approval)],
    ["policy.include_held", answer(data.include_held)],
    ["policy.include_preparing", answer(data.include_preparing)],
  ];
}

function brakeRows(data: PolicyBody): Rows {
  const hours = data.working_hours;
  return [
    ["policy.stop", data.stopped_by ? stoppedText(data.stopped_by) : t("policy.stop_off")],
    ["policy.breaker", t(data.breaker.open ? "policy.breaker_open" : "policy.breaker_closed")],
    ["policy.protected_namespaces", data.protected_namespaces.join(", ")],
    ["policy.protected_priorities", data.protected_priorities.join(", ")],
    ["policy.min_pod_age", duration(data.min_pod_age)],
    ["policy.max_per_hour", number(data.max_per_hour)],
    ["policy.max_per_namespace", number(data.max_per_namespace)],
    ["policy.max_fleet_share", percent(data.max_fleet_share)],
    ["policy.working_hours", hours ? t("policy.hours", { n: hours }) : t("policy.any_time")],
  ];
}

/** In the reader's language; an older analyzer gives no codes. */
function withoutText(sentence: string, code: PolicyBody["without_codes"][number] | undefined): string {
  return code ? t(`without.${code}`) : sentence;
}
