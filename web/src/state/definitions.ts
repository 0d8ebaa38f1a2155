/** What each figure counts or measures, as the analyzer defines it in both languages; read once. */
import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Definitions } from "../api/shapes";
import { language } from "./preferences";

const texts = signal<ReadonlyMap<string, Definitions["definitions"][number]["text"]> | null>(null);
let asked = false;

/** The definition of a figure; "": it is not there yet, or cannot be had. */
export function defined(code: string | undefined): string {
  if (!code) return "";
  if (!asked) {
    asked = true;
    get<Definitions>("/api/v1/definitions").then(
      (found) => {
        texts.value = new Map(found.definitions.map((one) => [one.code, one.text]));
      },
      () => {
        asked = false; // asked again with the next figure that is shown
      },
    );
  }
  return texts.value?.get(code)?.[language.value] ?? "";
}
