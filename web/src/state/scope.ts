/** The namespaces that are shown ("My GPUs") and the time range of charts; both are in the URL. */
import { computed } from "@preact/signals";
import { place, setQuery } from "./url";

export const RANGES = ["1h", "6h", "24h", "7d", "30d"] as const;
export type Range = (typeof RANGES)[number];

/** The namespaces to show; empty: all. */
export const scope = computed(() => place.value.query.getAll("scope").filter(Boolean));
export const range = computed<Range>(() => {
  const asked = place.value.query.get("range") as Range | null;
  return asked && RANGES.includes(asked) ? asked : "24h";
});

export const setScope = (namespaces: readonly string[]): void => setQuery({ scope: namespaces }, { replace: false });
export const setRange = (wanted: Range): void =>
  setQuery({ range: wanted === "24h" ? null : wanted }, { replace: false });
