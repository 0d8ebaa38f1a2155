/** What each figure counts or measures, as the analyzer defines it in both languages; read once. */
import { signal } from "@preact/signals";
import { analysed, get } from "../api/client";
import type { Definitions } from "../api/shapes";
import { duration } from "../parts/format";
import { t } from "../words";
import { language } from "./preferences";

type Definition = Definitions["definitions"][number];

const known = signal<ReadonlyMap<string, Definition> | null>(null);
let asked = false;

function definitionOf(code: string | undefined): Definition | undefined {
  if (!code) return undefined;
  if (!asked) {
    asked = true;
    get<Definitions>("/api/v1/definitions").then(
      (found) => {
        known.value = new Map(found.definitions.map((one) => [one.code, one]));
      },
      () => {
        asked = false; // asked again with the next figure that is shown
      },
    );
  }
  return known.value?.get(code);
}

/** The definition of a figure; "": it is not there yet, or cannot be had. */
export const defined = (code: string | undefined): string => definitionOf(code)?.text[language.value] ?? "";

/** What the time of a figure is measured by, if it is not the window of the analysis: a number of seconds, or its name. */
export type Span = number | string | null | undefined;

/** The time that a figure covers, in a few words: now, mean of 10 min. "": it has none, or it is not known yet. */
export function covers(code: string | undefined, span?: Span): string {
  const definition = definitionOf(code);
  if (!definition) return "";
  const time = span === undefined || span === null ? windowOf(definition.time) : named(span);
  return textOf(definition.time, time).replace(
    /(?<=[0-9A-Za-z])(?=\p{Script=Han})|(?<=\p{Script=Han})(?=[0-9A-Za-z])/gu,
    " ",
  );
}

function textOf(basis: string, time: string): string {
  switch (basis) {
    case "now":
      return t("covers.now");
    case "window_mean":
    case "agent_mean":
    case "step_mean":
      return t("covers.mean", { time });
    case "window_p95":
      return t("covers.p95", { time });
    case "window_peak":
    case "agent_peak":
    case "step_peak":
      return t("covers.peak", { time });
    case "step_low":
      return t("covers.low", { time });
    case "window_sum":
    case "step_integral":
    case "integral":
      return t("covers.sum", { time });
    case "day_integral":
      return t("covers.sum", { time: t("unit.hours", { n: 24 }) });
    case "day_ago":
      return t("covers.day_ago");
    case "since_start":
    case "since_boot":
      return t("covers.since_start");
    default:
      return "";
  }
}

const named = (span: number | string): string => (typeof span === "number" ? duration(span) : span);

/** The length of the time by its name, where it is one for all; else its name. */
function windowOf(time: string): string {
  if (!time.startsWith("window")) return t(time.startsWith("agent") ? "covers.agent" : "covers.range");
  const { window_seconds } = analysed.value;
  return window_seconds === null ? t("covers.window") : duration(window_seconds);
}
