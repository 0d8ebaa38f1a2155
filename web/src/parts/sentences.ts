/** Codes of the API as sentences that a stranger understands, in the language that is shown. */
import type { AttentionRow, PendingRow, TimelineEvent } from "../api/shapes";
import { language } from "../state/preferences";
import { named } from "../state/vocabulary";
import { t, word } from "../words";
import { bytes, duration, number, percent } from "./format";

/** What is the matter with the object of a row. How long it lasts is shown beside it. */
export function attentionText(row: AttentionRow): string {
  switch (row.kind) {
    case "unhealthy":
      return t("attend.unhealthy", { state: named("health", row.code) });
    case "xid":
      return xidText(row.number);
    case "no-data":
      return row.code === "SOURCE_DOWN"
        ? t("attend.target", { name: row.message ?? "" })
        : t("attend.no-data", { what: kindOf(row) });
    case "over-limit": // however little it is, it is not shown as 100 %
      return t("attend.over-limit", { share: percent(Math.max(row.number ?? 0, 1.001), 1) });
    case "near-limit":
      return t("attend.near-limit", { share: percent(row.number, 1) });
    case "idle-long":
      return t("attend.idle-long", { what: kindOf(row), reason: named("reason", row.code) });
    case "pending-long":
      return (language.value === "zh" ? row.message_zh : row.message) ?? named("scheduling", row.code);
    case "finding":
      return findingText(row.code ?? "", row.message ?? "");
    case "unattributed":
      return t("attend.unattributed", { size: bytes(row.number) });
    case "idle-tenant":
      return t("attend.idle-tenant", { what: kindOf(row) });
    default:
      return t(`attend.${row.kind}`);
  }
}

/** What a row is about: a GPU, or a MIG instance of one. */
export const kindOf = (row: { mig: string | null }): string => t(row.mig ? "kind.mig" : "kind.gpu");

/** What the rows of a table are: a GPU that MIG divides has a row for each of its instances. */
export const kindsOf = (rows: readonly { mig: string | null }[]): string =>
  t(rows.some((row) => row.mig) ? "kinds.mig" : "kinds.gpu");

/** A contradiction between scheduler, kubelet and pods. */
export function findingText(kind: string, reason: string): string {
  return word(`finding_text.${kind}.${reason}`, word(`finding_text.${kind}`, named("finding", kind)));
}

/** The number of an XID with its name, if it has one. */
export function xidText(xid: number | null): string {
  if (xid === null) return "XID";
  const name = word(`xid.${xid}`, "");
  return name ? t("attend.xid", { n: xid, name }) : `XID ${xid}`;
}

/** What happened. */
export function eventText(one: TimelineEvent): string {
  switch (one.kind) {
    case "xid":
      return xidText(one.number);
    case "gpu":
      return t(one.after === null ? "happened.gone" : "happened.seen", { what: kindOf(one) });
    case "target":
      return t(one.after === "up" ? "happened.up" : "happened.down", { name: one.message ?? "" });
    case "scheduling":
      return scheduled(one);
    case "verdict":
      return changed(one, (name) => word(`class.${name}`, name));
    case "health":
      return changed(one, (name) => named("health", name));
    default:
      return `${one.message ?? one.code ?? ""} ${changed(one, (name) => name)}`.trim();
  }
}

function changed(one: TimelineEvent, name: (value: string) => string): string {
  const value = (text: string | null): string => (text === null ? t("value.unknown") : name(text));
  return one.before === null && one.after === null ? "" : `${value(one.before)} → ${value(one.after)}`;
}

function scheduled(one: TimelineEvent): string {
  const outcome = word(`outcome.${one.after}`, named("outcome", one.after));
  const time = one.number === null ? "" : duration(one.number);
  const why = one.after === "scheduled" ? "" : named("scheduling", one.code);
  return [time ? t("happened.waited", { outcome, time }) : outcome, why].filter(Boolean).join(t("join"));
}

const MIB = 1024 * 1024;

/** What a pod asks for, in units that people read: 1 GPU, 16 GiB, 10 % cores. */
export function asks(row: Pick<PendingRow, "requests" | "claims">): string {
  return [...Object.entries(row.requests).map(([name, count]) => asked(name, count)), ...row.claims].join(t("comma"));
}

function asked(resource: string, count: number): string {
  const name = resource.replace(/^[^/]*\//, "");
  if (/^v?gpu$/.test(name)) return t("asks.gpus", { n: number(count) });
  if (name === "gpumem" || name === "vcuda-memory") return bytes(count * MIB);
  if (name === "gpumem-percentage") return t("asks.memory", { n: number(count) });
  if (name === "gpucores" || name === "vcuda-core") return t("asks.cores", { n: number(count) });
  return `${number(count)} × ${name}`;
}
