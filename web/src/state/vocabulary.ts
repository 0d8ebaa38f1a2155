/** The names of codes, as the analyzer gives them in both languages; read once. */
import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Vocabulary } from "../api/shapes";
import { language } from "./preferences";

type Kind = keyof Vocabulary;
type Word = Vocabulary[Kind][number];
const words = signal<ReadonlyMap<string, Word> | null>(null);
let asked = false;

/** The name of a code; the code itself until the names are there. */
export function named(kind: Kind, code: string | null | undefined): string {
  if (!code) return "–";
  const found = find(kind, code);
  return found ? found.name[language.value] : code;
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
        words.value = new Map(
          Object.entries(found).flatMap(([one, list]) => list.map((word) => [`${one}/${word.code}`, word] as const)),
        );
      },
      () => {
        asked = false; // asked again with the next code that is shown
      },
    );
  }
  return words.value?.get(`${kind}/${code}`);
}
