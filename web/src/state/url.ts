/** The URL is the state of the console: path and query, with links that work behind any path prefix. */
import { computed, signal } from "@preact/signals";

/** Path of the console, for example /ui/ or /monitoring/ui/. The analyzer writes <base> for it. */
export const base: string = new URL(".", document.baseURI).pathname;
/** Path of the analyzer's API. */
export const apiRoot: string = base.replace(/ui\/$/, "");

export interface Place {
  readonly path: string; // below the base, without a slash at the start: "gpus/GPU-1"
  readonly query: URLSearchParams;
}

const read = (): Place => ({
  path: decodeSafely(location.pathname.slice(base.length)).replace(/\/+$/, ""),
  query: new URLSearchParams(location.search),
});

const current = signal<Place>(read());
export const place = computed(() => current.value);
/** The path alone: it stays the same while filters and orders change. */
export const path = computed(() => current.value.path);

/** Goes to a page; `replace` does not add a step for the back button. */
export function go(path: string, query?: URLSearchParams, options: { replace?: boolean } = {}): void {
  const text = query?.toString();
  const to = href(path) + (text ? `?${text}` : "");
  history[options.replace ? "replaceState" : "pushState"](null, "", to);
  current.value = read();
}

/** The URL of a page, each part of the path encoded. */
export function href(path: string): string {
  return base + path.split("/").map(encodeURIComponent).join("/");
}

/** A path from parts that may themselves hold a slash. */
export function pathOf(...parts: string[]): string {
  return parts.map((part) => part.replaceAll("/", "%2F")).join("/");
}

/** The parts of a path as `pathOf` was given them. */
export function partsOf(path: string): string[] {
  return path.split("/").map((part) => part.replaceAll("%2F", "/"));
}

/** Changes parameters of this page; null or "" removes one. */
export function setQuery(
  changes: Record<string, string | readonly string[] | null>,
  options: { replace?: boolean } = { replace: true },
): void {
  const query = new URLSearchParams(current.value.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of typeof value === "string" ? [value] : (value ?? [])) if (one !== "") query.append(name, one);
  }
  go(current.value.path, query, options);
}

/** Parameters that belong to the console and not to one page: they go along with every link. */
const CARRIED = ["scope", "range", "from", "to"];

export function carried(): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of CARRIED) for (const value of current.value.query.getAll(name)) query.append(name, value);
  return query;
}

function decodeSafely(path: string): string {
  try {
    return path
      .split("/")
      .map((part) => decodeURIComponent(part).replaceAll("/", "%2F"))
      .join("/");
  } catch {
    return path; // a wrong URL is a page that does not exist
  }
}

addEventListener("popstate", () => {
  current.value = read();
});
