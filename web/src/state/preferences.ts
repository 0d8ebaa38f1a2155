/** What a browser remembers: theme, language, columns, refresh. Never anything secret. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Language = "en" | "zh";
export const REFRESH = [0, 15, 30, 60] as const; // seconds; 0: only when asked
export type Refresh = (typeof REFRESH)[number];

export const theme = signal<Theme>(stored("theme", ["system", "light", "dark"], "system"));
export const language = signal<Language>(
  stored("language", ["en", "zh"], navigator.language.startsWith("zh") ? "zh" : "en"),
);
export const refresh = signal<Refresh>(Number(stored("refresh", REFRESH.map(String), "30")) as Refresh);
const system = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
const systemIsDark = signal(system?.matches ?? false);
system?.addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});
export const narrow = signal(stored("nav", ["wide", "narrow"], "wide") === "narrow");

/** Hidden columns of a table. */
export function hiddenColumns(table: string): string[] {
  return (get(`columns.${table}`) ?? "").split(",").filter(Boolean);
}

export function hideColumns(table: string, hidden: readonly string[]): void {
  set(`columns.${table}`, hidden.join(","));
}

effect(() => set("theme", theme.value));
effect(() => set("language", language.value));
effect(() => set("refresh", String(refresh.value)));
effect(() => set("nav", narrow.value ? "narrow" : "wide"));
effect(() => {
  const root = document.documentElement;
  root.lang = language.value === "zh" ? "zh-CN" : "en";
  root.dataset.theme = theme.value === "system" ? (systemIsDark.value ? "dark" : "light") : theme.value;
});

function stored<T extends string>(name: string, allowed: readonly T[], otherwise: T): T {
  const found = get(name) as T | null;
  return found !== null && allowed.includes(found) ? found : otherwise;
}

function get(name: string): string | null {
  try {
    return localStorage.getItem(`vgpuscope.${name}`);
  } catch {
    return null; // storage is blocked: the console works without a memory
  }
}

function set(name: string, value: string): void {
  try {
    localStorage.setItem(`vgpuscope.${name}`, value);
  } catch {
    // as above
  }
}
