/** What a case may become, and what can be said of it: rules without a picture. */
import type { AuditEntry, CaseRow } from "../api/shapes";
import { type Key, t, word } from "../words";
import { moment, number } from "./format";

export type CaseState = CaseRow["state"];
export const ACTIONS = ["approve", "snooze", "exempt", "resume", "restore"] as const;
export type CaseAction = (typeof ACTIONS)[number];

const OPEN: readonly CaseState[] = ["candidate", "notified", "grace", "awaiting_approval", "acting", "would_act"];
const FINAL: readonly CaseState[] = ["verified", "restored", "exempt"];
const TAKEN: readonly CaseState[] = ["acting", "verified", "failed"];
type Tone = "good" | "warn" | "bad" | "plain";
const TONES: Partial<Record<CaseState, Tone>> = {
  grace: "warn",
  awaiting_approval: "warn",
  acting: "warn",
  verified: "good",
  failed: "bad",
};

export const isOpen = (row: CaseRow): boolean => OPEN.includes(row.state);
/** Since when it is idle; null once it works again or is gone. */
export const idleSince = (row: CaseRow): number | null =>
  isOpen(row) || row.state === "snoozed" ? row.idle_since : null;
/** Somebody has approved it; until the next analysis, or while a brake holds, it is in the state that asks for that. */
export const isApproved = (row: CaseRow): boolean => row.state === "awaiting_approval" && row.reason === "approved";
/** A dry run acts on nothing, so its case must not look as if it did. */
const isDry = (row: CaseRow): boolean => row.state === "would_act";
export const toneOf = (row: CaseRow): Tone => (isDry(row) ? "plain" : (TONES[row.state] ?? "plain"));
export const stateKey = (row: CaseRow): string => (isApproved(row) ? "approved" : row.state);
export const stateName = (row: CaseRow): string => t(`case_state.${stateKey(row)}` as Key);
export const reasonName = (code: string): string => word(`case_reason.${code}`, code);
export const brakeText = (code: string): string => word(`brake.${code}`, code);
type HeldBy = CaseRow["brakes"][number];

/** What holds a case back, each with the setting that decides it. An older analyzer does not name the setting. */
export const brakesOf = (row: CaseRow): readonly HeldBy[] =>
  row.brakes ?? row.held_by.map((brake) => ({ brake, setting: null, value: null }));

/** The setting behind a brake: "reclaim.include_held is false"; "" if no setting decides it. */
export function settingOf({ setting, value }: HeldBy): string {
  if (setting === null || value === null) return setting ?? "";
  return t(setting === "reclaim.protected_namespaces" ? "brake_setting.contains" : "brake_setting.is", {
    setting,
    value,
  });
}

type Signal = NonNullable<CaseRow["signals"]>[number];

/** What a sign of use says: "vllm: in use (12)". A detail says by itself what is wrong. */
export function signalText(signal: Signal): string {
  const name = word(`signal.${signal.name}`, signal.name);
  const said = signal.active === null ? "unread" : signal.active ? "active" : "quiet";
  const facts = [
    ...(signal.active === false && signal.detail ? [] : [t(`signal_is.${said}`)]),
    ...(signal.at === null ? [] : [t("signal_is.at", { time: moment(signal.at) })]),
    ...(signal.value === null ? [] : [t("signal_is.value", { n: number(signal.value, 1) })]),
    ...(signal.detail ? [signal.detail] : []),
  ];
  return name + t("join") + facts.join(t("comma"));
}

/** Something was really done to the workload. */
const isTaken = (row: CaseRow): boolean => !row.dry_run && row.acted_at !== null && TAKEN.includes(row.state);
/** What was done cannot be undone from here: a control service did it, or a pod without an owner was evicted. */
export const isBeyondRestore = (row: CaseRow): boolean =>
  isTaken(row) && row.state === "verified" && row.restorable === false;

/** The actions that the analyzer accepts for a case in its state. */
export function actionsOf(row: CaseRow): CaseAction[] {
  const fits: Record<CaseAction, boolean> = {
    approve: row.state === "awaiting_approval" && !isApproved(row),
    snooze: isOpen(row) || row.state === "snoozed",
    exempt: !FINAL.includes(row.state),
    resume: row.state === "snoozed" || (row.state === "exempt" && row.reason !== "annotation"),
    restore: row.restorable ?? isTaken(row), // an older analyzer does not say
  };
  return ACTIONS.filter((action) => fits[action]);
}

/** Who took a step: a user, or one of those that have no name of their own. */
export const actorName = (actor: string): string => word(`actor.${actor}`, actor);

/** What happens next: the words, and the moment (Unix seconds) that a countdown goes to. */
export interface Next {
  readonly key: Key;
  readonly at?: number;
}

export function nextOf(row: CaseRow, dry = false): Next | null {
  const at = row.next_at;
  if (row.state === "candidate") return row.held_by.length && !row.confirmations ? null : { key: "case_next.windows" };
  if (row.state === "awaiting_approval") return { key: isApproved(row) ? "case_next.now" : "case_next.approval" };
  if (at === null || isDry(row)) return null;
  if (row.state === "grace") return { key: dry ? "case_next.would_act" : "case_next.action", at };
  if (row.state === "snoozed") return { key: "case_next.wakes", at };
  return row.state === "acting" ? { key: "case_next.gives_up", at } : null;
}

export interface Fault {
  readonly key: Key;
  readonly reason: string;
}
const FAULTS: Partial<Record<string, Key>> = {
  call_failed: "case.call_failing",
  notice_failed: "case.notice_failing",
};

/** What fails again and again while a case waits for it, by its steps (the newest first); null: nothing does. */
export function faultOf(row: CaseRow, steps: readonly AuditEntry[]): Fault | null {
  const last = steps[0];
  const key = last && ["acting", "notified"].includes(row.state) ? FAULTS[last.what] : undefined;
  return last && key ? { key, reason: last.reason } : null;
}

/** A duration as people write it in settings: 90s, 30m, 2h, 1d; null: it is none. */
export function secondsOf(text: string): number | null {
  const found = /^(\d+(?:\.\d+)?)\s*(s|m|h|d)?$/.exec(text.trim());
  return found
    ? Number(found[1]) * { s: 1, m: 60, h: 3600, d: 86_400 }[(found[2] ?? "s") as "s" | "m" | "h" | "d"]
    : null;
}

/** The shortest way to write a duration in settings. */
export function settingText(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3600],
    ["m", 60],
  ] as const) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}
