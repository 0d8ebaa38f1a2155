/** Numbers, sizes and times as text, by language. What is not known is a dash, never 0. */
import { language } from "../state/preferences";
import { t } from "../words";

export const NONE = "–";
type Maybe<T> = T | null | undefined;

const locale = (): string => (language.value === "zh" ? "zh-CN" : "en-GB");
const made = new Map<string, Intl.NumberFormat>();

export function number(value: Maybe<number>, digits = 0): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const key = `${locale()}/${digits}`;
  let format = made.get(key);
  if (!format) {
    format = new Intl.NumberFormat(locale(), { maximumFractionDigits: digits });
    made.set(key, format);
  }
  return format.format(value);
}

/** A ratio as percent; above 1 it is more than 100 %. */
export function percent(value: Maybe<number>, digits = 0): string {
  if (value === null || value === undefined) return NONE;
  const shown = value * 100;
  const small = shown > 0 && shown < 1 && digits === 0;
  return `${number(shown, small ? 1 : digits)} %`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

export function bytes(value: Maybe<number>): string {
  if (value === null || value === undefined) return NONE;
  let step = 0;
  let size = Math.abs(value);
  while (size >= 1024 && step < UNITS.length - 1) {
    size /= 1024;
    step += 1;
  }
  return `${value < 0 ? "−" : ""}${number(size, size < 10 && step > 0 ? 1 : 0)} ${UNITS[step]}`;
}

/** Bytes per second. */
export function rate(value: Maybe<number>): string {
  return value === null || value === undefined ? NONE : `${bytes(value)}/s`;
}

/** The exact number of bytes, for a tooltip. */
export function exactBytes(value: Maybe<number>): string {
  return value === null || value === undefined ? NONE : `${number(value)} B`;
}

export function watts(value: Maybe<number>): string {
  if (value === null || value === undefined) return NONE;
  return Math.abs(value) < 1000 ? `${number(value)} W` : `${number(value / 1000, 1)} kW`;
}

/** Joules, as people pay for them: watt-hours. */
export function energy(joules: Maybe<number>): string {
  if (joules === null || joules === undefined) return NONE;
  const hours = joules / 3600;
  return Math.abs(hours) < 1000 ? `${number(hours)} Wh` : `${number(hours / 1000, 1)} kWh`;
}

export function degrees(value: Maybe<number>): string {
  return value === null || value === undefined ? NONE : `${number(value)} °C`;
}

/** A duration with its two largest units at most: 3 d 4 h. */
export function duration(seconds: Maybe<number>): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("unit.seconds", { n: number(whole) });
  if (whole < 3600) return t("unit.minutes", { n: number(Math.floor(whole / 60)) });
  if (whole < 86_400) return pair(whole, 3600, 60, "unit.hours", "unit.minutes");
  return pair(whole, 86_400, 3600, "unit.days", "unit.hours");
}

type Unit = "unit.minutes" | "unit.hours" | "unit.days";

function pair(whole: number, large: number, small: number, first: Unit, second: Unit): string {
  const rest = Math.floor((whole % large) / small);
  const text = t(first, { n: number(Math.floor(whole / large)) });
  return rest ? `${text} ${t(second, { n: rest })}` : text;
}

const TO_THE_MINUTE = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" } as const;
const TO_THE_SECOND = { ...TO_THE_MINUTE, second: "2-digit" } as const;

/** A moment in the browser's time zone, which it names. */
export function moment(at: Maybe<string | number>): string {
  return timeText(at, { ...TO_THE_SECOND, year: "numeric", timeZoneName: "short" });
}

/** A moment to the minute, without its year. */
export function shortMoment(at: Maybe<string | number>): string {
  return timeText(at, { ...TO_THE_MINUTE, timeZoneName: "short" });
}

/** From one moment to another, to the minute, with the zone once. */
export function shortPeriod(from: number, to: number): string {
  return `${timeText(from, TO_THE_MINUTE)} – ${timeText(to, TO_THE_MINUTE)} ${zoneAt(to)}`;
}

/** The time from one moment to another, to the minute: 14:00–15:00 UTC, with the day if it is not today. */
export function stretch(from: number, to: number, today: number): string {
  const day = (at: number): string =>
    new Date(at * 1000).toLocaleDateString(locale(), { month: "short", day: "numeric" });
  const clock = (at: number): string =>
    new Date(at * 1000).toLocaleTimeString(locale(), {
      hour: "2-digit",
      minute: "2-digit",
      ...(to - from < 60 ? { second: "2-digit" } : {}),
    });
  if (to - from >= 86_400) return day(from) === day(to - 1) ? day(from) : `${day(from)} – ${day(to - 1)}`;
  const times = `${clock(from)}–${clock(to)} ${zoneAt(to)}`;
  return day(from) === day(today) ? times : t("moment.day", { day: day(from), times });
}

/** A moment to the second, without its year: for logs. */
export function logMoment(at: Maybe<string | number>): string {
  return timeText(at, { ...TO_THE_SECOND, timeZoneName: "short" });
}

/** The browser's time zone at a moment: UTC, GMT+8, CET. */
function zoneAt(at: number): string {
  const parts = new Intl.DateTimeFormat(locale(), { timeZoneName: "short" }).formatToParts(at * 1000);
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

function timeText(at: Maybe<string | number>, parts: Intl.DateTimeFormatOptions): string {
  return dateOf(at)?.toLocaleString(locale(), parts) ?? NONE;
}

/** The name of a model without what all of them have in common. */
export function shortModel(model: string): string {
  return model.replace(/^NVIDIA /, "");
}

/** A moment with its zone, for tooltips. */
export function momentWithZone(at: Maybe<string | number>): string {
  const date = dateOf(at);
  return date === null ? NONE : date.toLocaleString(locale(), { dateStyle: "full", timeStyle: "long" });
}

/** Seconds from a moment until now; null if it is not known. */
export function ageOf(at: Maybe<string | number>, now: number): number | null {
  const date = dateOf(at);
  return date === null ? null : (now - date.getTime()) / 1000;
}

function dateOf(at: Maybe<string | number>): Date | null {
  if (at === null || at === undefined || at === "") return null;
  const date = new Date(typeof at === "number" ? at * 1000 : at);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** The beginning of a UUID, as the commands show it: GPU- and eight characters. */
export function shortId(id: string): string {
  return id.length > 20 ? `${id.slice(0, 12)}…` : id;
}
