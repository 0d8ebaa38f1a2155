/** The classes of use, in the order in which they are stacked, with a colour and a sign for each. */

export const CLASSES = [
  "busy",
  "busy-unproductive",
  "low",
  "not-started",
  "stalled",
  "idle-preparing",
  "idle-held",
  "idle",
  "unallocated",
  "unknown",
] as const;
export type UseClass = (typeof CLASSES)[number];

/** A sign for each class, for people who do not see its colour. */
export const SIGNS: Record<UseClass, string> = {
  busy: "●",
  "busy-unproductive": "◐",
  low: "◔",
  "not-started": "◌",
  stalled: "✕",
  "idle-preparing": "▤",
  "idle-held": "■",
  idle: "○",
  unallocated: "·",
  unknown: "?",
};

export function classOf(name: string | null | undefined): UseClass {
  return CLASSES.includes(name as UseClass) ? (name as UseClass) : "unknown";
}

/** The class that is shown: an idle GPU that no pod has is not wasted by anyone. */
export function shownClass(row: {
  readonly use_class: string;
  readonly verdict: string;
  readonly held: boolean;
}): UseClass {
  return row.verdict === "idle" && !row.held ? "unallocated" : classOf(row.use_class);
}

/** The colour of a class in the theme that is shown now. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--c-${name}`).trim() || "#888";
}

const DARK = new Set<UseClass>(["busy", "busy-unproductive", "idle-preparing", "idle-held", "stalled"]);

/** The colour of a sign on the colour of its class. */
export function signInk(name: UseClass): string {
  const variable = DARK.has(name)
    ? "--c-on-dark"
    : name === "unknown"
      ? "--c-on-unknown"
      : name === "unallocated"
        ? "--ink"
        : "";
  return variable ? getComputedStyle(document.documentElement).getPropertyValue(variable).trim() : "#16191d";
}

export function ink(name: "ink" | "ink-2" | "ink-3" | "line" | "paper" | "accent" | "raised" | "warn"): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
}
