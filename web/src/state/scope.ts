/** The namespaces that are shown ("My GPUs") and the time range of charts; both are in the URL. */
import { computed } from "@preact/signals";
import { place, setQuery } from "./url";

export const RANGES = ["1h", "6h", "24h", "7d", "30d"] as const;
export type Range = (typeof RANGES)[number];
const USUAL: Range = "24h";

/** A range of the user's own: from one moment to another, in Unix seconds. */
export interface Period {
  readonly from: number;
  readonly to: number;
}

/** The namespaces to show; empty: all. */
export const scope = computed(() => place.value.query.getAll("scope").filter(Boolean));
export const range = computed<Range>(() => {
  const asked = place.value.query.get("range") as Range | null;
  return asked && RANGES.includes(asked) ? asked : USUAL;
});
/** The user's own range; null: one of the usual ones counts. */
export const period = computed<Period | null>(() => periodOf(place.value.query));

/** What requests for history are asked with. */
export const span = computed<{ range: string; end: number | null }>(() => {
  const own = period.value;
  return own ? { range: lengthOf(own), end: own.to } : { range: range.value, end: null };
});

/** A period that a query string describes; wrong or reversed moments are ignored. */
export function periodOf(query: URLSearchParams): Period | null {
  const from = Math.floor(Date.parse(query.get("from") ?? "") / 1000);
  const to = Math.floor(Date.parse(query.get("to") ?? "") / 1000);
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? { from, to } : null;
}

/** The length of a period as the API takes it: whole minutes, or hours if it is longer than a few days. */
export function lengthOf({ from, to }: Period): string {
  const minutes = Math.max(1, Math.ceil((to - from) / 60));
  return minutes <= 9999 ? `${minutes}m` : `${Math.min(9999, Math.ceil(minutes / 60))}h`;
}

export const setScope = (namespaces: readonly string[]): void => setQuery({ scope: namespaces }, { replace: false });
export const setRange = (wanted: Range): void =>
  setQuery({ range: wanted === USUAL ? null : wanted, from: null, to: null }, { replace: false });
export const setPeriod = ({ from, to }: Period): void =>
  setQuery({ range: null, from: isoMinute(from), to: isoMinute(to) }, { replace: false });

const isoMinute = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 16)}Z`;
