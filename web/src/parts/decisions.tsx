/** Decisions of the scheduler extender: the choice, the terms of its score, and why other nodes were refused. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { AskedGpus, CodeRow, DecisionList, DecisionRow, PodDecisions } from "../api/shapes";
import { language } from "../state/preferences";
import { pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { type Key, t, word } from "../words";
import { Num, NumHead, Said, Value } from "./figures";
import { bytes, NONE, number, shortId } from "./format";
import { current, PartNotes, part } from "./partnote";
import { Age, type FactRow, Facts, Link, Panel, Prose, Scroll, Tag } from "./pieces";

const FIRST = 10; // rows that are shown before more are asked for
const MIB = 1024 * 1024;
const QUOTA = "SCHED_QUOTA_EXCEEDED"; // its sentence has no numbers
const TONES = { assigned: "good", bound: "good", refused: "warn", failed: "bad" } as const;

/** Whether an extender is configured: without one, nothing is said about decisions. */
export function hasExtender(data: { parts: DecisionList["parts"] }): boolean {
  const state = part(data.parts, "extender")?.state;
  return state !== undefined && state !== "absent";
}

export function Outcome({ of }: { of: DecisionRow["outcome"] }) {
  return <Tag tone={TONES[of]}>{t(`decided.${of}`)}</Tag>;
}

/** What one container requests: 2 × 8 GiB, 30 % cores. */
export function askText(one: AskedGpus): string {
  const memory =
    one.memory !== null
      ? bytes(one.memory * MIB)
      : one.percentage !== null
        ? t("asks.memory", { n: number(one.percentage) })
        : t("asks.whole");
  const cores = one.cores ? [t("asks.cores", { n: number(one.cores) })] : [];
  return [t("asks.gpus", { n: number(one.count) }), memory, ...cores].join(t("comma"));
}

export const asksText = (asks: readonly AskedGpus[]): string | null =>
  asks.length
    ? asks
        .map((one) => (asks.length > 1 ? t("asks.of", { container: one.container, asks: askText(one) }) : askText(one)))
        .join(t("semicolon"))
    : null;

/** Why a pod was refused in one line: the code of most nodes, and how many. */
export function mainReason(row: DecisionRow): string {
  const [first] = Object.entries(row.codes);
  if (row.outcome !== "refused" || !first) return "";
  const reason = named("scheduling", first[0]).replace(/[.。]$/, "");
  return t("decided.reason", { reason, nodes: t("decided.nodes", { n: number(first[1]) }) });
}

export function scoreText(row: DecisionRow): string | null {
  if (row.score === null) return null;
  const terms = Object.entries(row.terms).map(
    ([name, value]) => `${word(`score_term.${name}`, name)} ${number(value, 2)}`,
  );
  return t("decided.score", { n: number(row.score, 2) }) + (terms.length ? ` = ${terms.join(" + ")}` : "");
}

// ── the list ──────────────────────────────────────────────────────────────────────────────────────────────────────

export function Decisions({ data }: { data: DecisionList }) {
  const [all, setAll] = useState(false);
  const rows = repeated(data.rows);
  return (
    <Panel title={t("decided.title")} stale={!current(data.parts, "extender")}>
      {rows.length === 0 ? (
        <div class="empty small">{t("decided.none")}</div>
      ) : (
        <DecisionTable rows={all ? rows : rows.slice(0, FIRST)} pods />
      )}
      {rows.length > FIRST && (
        <button type="button" class="link" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("attention.fewer") : t("attention.all", { n: number(rows.length) })}
        </button>
      )}
    </Panel>
  );
}

interface Repeated {
  readonly row: DecisionRow; // the newest of them
  readonly times: number;
}

/** Equal decisions about a pod are one row: a pod that fits nowhere is refused again and again. */
export function repeated(rows: readonly DecisionRow[]): Repeated[] {
  const found = new Map<string, Repeated>();
  for (const row of rows) {
    const key = JSON.stringify([row.pod_uid, row.outcome, row.node, Object.keys(row.codes)[0]]);
    const known = found.get(key);
    found.set(key, known ? { ...known, times: known.times + 1 } : { row, times: 1 });
  }
  return [...found.values()];
}

function DecisionTable({ rows, pods = false }: { rows: readonly Repeated[]; pods?: boolean }) {
  const placed = rows.some(({ row }) => row.node !== null);
  const refused = rows.some(({ row }) => mainReason(row) !== "");
  return (
    <Scroll name="decisions" rows={rows.length}>
      <table class="decisions">
        <thead>
          <tr>
            <th scope="col">{t("decided.outcome")}</th>
            {pods && <th scope="col">{t("col.pod")}</th>}
            {placed && (
              <>
                <th scope="col">{t("col.node")}</th>
                <NumHead title="col.gpus" figure="decision.gpus" class="wide" />
                <NumHead title="col.node_score" figure="decision.node_score" class="wide" />
              </>
            )}
            {refused && <th scope="col">{t("col.why")}</th>}
            <th scope="col" class="num" data-names="moment">
              {t("col.when")}
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ row, times }) => (
            <tr key={row.id} data-key={row.id}>
              <td>
                <Outcome of={row.outcome} />{" "}
                {times > 1 && (
                  <span class="muted">
                    <Said text="decided.times" numbers={{ n: ["decision.times", number(times)] }} />
                  </span>
                )}
              </td>
              {pods && (
                <th scope="row">
                  <Link to={pathOf("scheduling", row.namespace, row.pod)}>
                    {row.namespace}/{row.pod}
                  </Link>
                </th>
              )}
              {placed && (
                <>
                  <td>{row.node ? <Link to={pathOf("nodes", row.node)}>{row.node}</Link> : NONE}</td>
                  <Num figure="decision.gpus" class="wide">
                    {row.gpus.length ? number(row.gpus.length) : NONE}
                  </Num>
                  <Num figure="decision.node_score" class="wide" title={scoreText(row) ?? undefined}>
                    {number(row.score, 2)}
                  </Num>
                </>
              )}
              {refused && <td class="wrap">{mainReason(row)}</td>}
              <td class="num">
                <Age at={row.at} ago />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

// ── one pod ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** The last decision about a pod, why nodes were refused, and the decisions before. */
export function OfPod({ data, children }: { data: PodDecisions; children?: ComponentChildren }) {
  const [last, ...earlier] = data.rows;
  const sought = data.sought ?? last;
  const stale = !current(data.parts, "extender");
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["extender"]} />
      {last && sought && (
        <Panel title={t("decided.last")} stale={stale} note={<Age at={last.at} ago />}>
          <p>
            <Outcome of={last.outcome} /> {sentence(last)}
          </p>
          <Facts rows={factsOf(sought, data)} />
        </Panel>
      )}
      {children}
      {data.codes.map((code) => (
        <Refused
          key={code.code}
          code={code}
          stale={stale}
          names={{ NAMESPACE: last?.namespace ?? "", POD: last?.pod ?? "" }}
        />
      ))}
      {earlier.length > 0 && (
        <Panel title={t("decided.earlier")} stale={stale}>
          <DecisionTable rows={repeated(earlier).slice(0, FIRST)} />
        </Panel>
      )}
    </div>
  );
}

/** What is known of a decision; a refusal has neither GPUs nor a score. */
function factsOf(row: DecisionRow, data: PodDecisions): FactRow[] {
  const chosen: (readonly [Key, ComponentChildren])[] = [
    ["col.gpus", gpusOf(row)],
    ["col.score", scoreText(row)],
    ["decided.policy", row.policy],
    ["decided.ranked", rankedOf(data)],
  ];
  return [
    ["col.asks", asksText(row.asks)],
    ...(row.constraints.length ? [["decided.constraints", row.constraints.join(" ")] as const] : []),
    ...chosen.filter(([, value]) => value !== null),
    ["decided.took", took(row.seconds), undefined, "decision.seconds"],
  ];
}

function sentence(row: DecisionRow): string {
  if (row.outcome === "refused") return mainReason(row);
  return row.node ? t("decided.on", { node: row.node }) : "";
}

function gpusOf(row: DecisionRow): ComponentChildren {
  if (row.gpus.length === 0) return null;
  return (
    <ul class="plain-list">
      {row.gpus.map((one, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the same GPU can occur twice, with two MIG instances
        <li key={place}>
          <Link to={pathOf("gpus", one.uuid)} title={one.uuid}>
            <span class="mono">{shortId(one.uuid)}</span>
          </Link>{" "}
          <Value figure="decision.memory" of={one.uuid}>
            {bytes(one.memory * MIB)}
          </Value>
          {one.cores ? `${t("comma")}${t("asks.cores", { n: number(one.cores) })}` : ""}
        </li>
      ))}
    </ul>
  );
}

/** Nodes that the pod fits on as well, best first. */
function rankedOf(data: PodDecisions): string | null {
  const others = data.ranked.filter((one) => one.node !== data.sought?.node).slice(0, 5);
  return others.map((one) => `${one.node} ${number(one.score, 2)}`).join(t("comma")) || null;
}

const took = (seconds: number): string =>
  seconds < 1 ? `${number(seconds * 1000, seconds < 0.01 ? 2 : 0)} ms` : `${number(seconds, 1)} s`;

type Verdict = CodeRow["nodes"][number];

/** Nodes with the same verdict together, in the order in which they are given. */
export function byMessage(nodes: readonly Verdict[]): [Verdict, string[]][] {
  const found = new Map<string, [Verdict, string[]]>();
  for (const one of nodes) {
    const known = found.get(one.message);
    if (known) known[1].push(one.node);
    else found.set(one.message, [one, [one.node]]);
  }
  return [...found.values()];
}

/** A verdict in the language of the page; what another program said, such as the API server, is in its own words. */
export function messageOf(one: { message: string; message_zh: string }): ComponentChildren {
  if (language.value === "en") return one.message;
  return one.message_zh || <code lang="en">{one.message}</code>;
}

function Refused({ code, stale, names }: { code: CodeRow; stale: boolean; names: Record<string, string> }) {
  const rest = code.count - code.nodes.length;
  return (
    <Panel
      title={code.meaning?.[language.value] ?? named("scheduling", code.code)}
      of={code.code}
      note={<Said text="decided.nodes" numbers={{ n: ["decision.refused_by_code", number(code.count)] }} />}
      stale={stale}
    >
      {code.advice && (
        <p>
          <Prose text={code.advice[language.value]} names={names} />
        </p>
      )}
      <Scroll>
        <table class="decisions">
          <thead>
            <tr>
              <th scope="col">{t("col.node")}</th>
              <th scope="col">{t("decided.verdict")}</th>
            </tr>
          </thead>
          <tbody>
            {byMessage(code.nodes).map(([first, nodes]) => (
              <tr key={first.node}>
                <th scope="row" class="wrap">
                  {nodes.map((node, place) => (
                    <span key={node}>
                      {place > 0 && t("decided.and")}
                      <Link to={pathOf("nodes", node)}>{node}</Link>
                    </span>
                  ))}
                </th>
                <td class="wrap">
                  {messageOf(first)}
                  {code.code === QUOTA && t("decided.amounts", { asked: first.requested, left: first.available })}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {rest > 0 && <p class="muted">{t("decided.more", { n: number(rest) })}</p>}
      <p class="muted mono">{code.code}</p>
    </Panel>
  );
}
