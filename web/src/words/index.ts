/** The texts of the console. A key that one language lacks is an error of the compiler. */
import { language } from "../state/preferences";
import { en } from "./en";
import { zh } from "./zh";

export type Words = typeof en;
export type Key = keyof Words;

const HOLE = /\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g;

/** The text of a key; {name} in it is replaced by the value of that name, and {name:one|many} by a word that fits it. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text: string = (language.value === "zh" ? zh : en)[key];
  return text.replace(HOLE, (whole, name: string, one?: string, many?: string) => {
    if (one !== undefined && many !== undefined) return String(values[name]) === "1" ? one : many;
    return String(values[name] ?? whole);
  });
}

/** The same text in pieces; a piece that fills a hole comes with the name of the hole. */
export function pieces(
  key: Key,
  values: Record<string, string | number>,
): readonly (readonly [string, string | null])[] {
  const text: string = (language.value === "zh" ? zh : en)[key];
  const found: [string, string | null][] = [];
  let at = 0;
  for (const hole of text.matchAll(HOLE)) {
    const [whole, name = "", one, many] = hole;
    found.push([text.slice(at, hole.index), null]);
    if (one !== undefined && many !== undefined) found.push([String(values[name]) === "1" ? one : many, null]);
    else found.push([String(values[name] ?? whole), name]);
    at = hole.index + whole.length;
  }
  return [...found, [text.slice(at), null] as const].filter(([piece]) => piece !== "");
}

/** The text of a key that is made at run time; the given text if there is none. */
export function word(key: string, otherwise: string): string {
  return key in en ? t(key as Key) : otherwise;
}
