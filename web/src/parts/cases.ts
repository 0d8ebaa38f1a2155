/** What a case may become, and what can be said of it: rules without a picture. */
import type { CaseRow } from "../api/shapes";
import { type Key, t, word } from "../words";

export type CaseState = CaseRow["state"];
export const ACTIONS = ["approve", "snooze", "exempt", "restore"] as const;
export type CaseAction = (typeof ACTIONS)[number];

const OPEN: readonly CaseState[] = ["candidate", "notified", "grace", "awaiting_approval", "acting"];
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
/** A dry run acts on nothing, so its case must not look as if it did. */
const isDry = (row: CaseRow): boolean => row.state === "acting" && row.dry_run;
export const toneOf = (row: CaseRow): Tone => (isDry(row) ? "plain" : (TONES[row.state] ?? "plain"));
export const stateKey = (row: CaseRow): string => (isDry(row) ? "acting_dry" : row.state);
export const stateName = (row: CaseRow): string => t(`case_state.${stateKey(row)}` as Key);
export const reasonName = (code: string): string => word(`case_reason.${code}`, code);
export const brakeText = (code: string): string => word(`brake.${code}`, code);

/** The actions that the analyzer accepts for a case in its state. */
export function actionsOf(row: CaseRow): CaseAction[] {
  const fits: Record<CaseAction, boolean> = {
    approve: row.state === "awaiting_approval",
    snooze: isOpen(row) || row.state === "snoozed",
    exempt: !FINAL.includes(row.state),
    restore: !row.dry_run && row.acted_at !== null && TAKEN.includes(row.state),
  };
  return ACTIONS.filter((action) => fits[action]);
}

/** What happens next: the words, and the moment (Unix seconds) that a countdown goes to. */
export interface Next {
  readonly key: Key;
  readonly at?: number;
}

export function nextOf(row: CaseRow): Next | null {
  const at = row.next_at;
  if (row.state === "candidate") return { key: "case_next.windows" };
  if (row.state === "awaiting_approval") return { key: "case_next.approval" };
  if (at === null || isDry(row)) return null;
  if (row.state === "grace") return { key: "case_next.action", at };
  if (row.state === "snoozed") return { key: "case_next.wakes", at };
  return row.state === "acting" ? { key: "case_next.gives_up", at } : null;
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
