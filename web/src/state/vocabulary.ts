/** The names of codes, as the analyzer gives them in both languages; read once. */
import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Vocabulary } from "../api/shapes";
import { language } from "./preferences";

type Kind = keyof Vocabulary;
type Word = Vocabulary[Kind][number];
const words = signal<ReadonlyMap<string, Word> | null>(null);
const refused = signal(false);
let asked = false;

/** The name of a code; "…" until the names are there; the code itself if it has no name, or if there are no names. */
export function named(kind: Kind, code: string | null | undefined): string {
  if (!code) return "–";
  const found = find(kind, code);
  if (found) return found.name[language.value];
  return words.value || refused.value ? code : "…";
}

/** What to do about a code; "": nothing is known. */
export function adviceFor(kind: Kind, code: string): string {
  return find(kind, code)?.advice?.[language.value] ?? "";
}

function find(kind: Kind, code: string): Word | undefined {
  if (!asked) {
    asked = true;
    get<Vocabulary>("/api/v1/words").then(
      (found) => {
        refused.value = false;
        words.value = new Map(
          Object.entries(found).flatMap(([one, list]) => list.map((word) => [`${one}/${word.code}`, word] as const)),
        );
      },
      () => {
        refused.value = true;
        asked = false; // asked again with the next code that is shown
      },
    );
  }
  return words.value?.get(`${kind}/${code}`);
}
