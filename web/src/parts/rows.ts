/** Search, filters and order of a table: pure functions over rows, with their state in the URL. */

export type Value = string | number | boolean | null | undefined;

export interface Readable<R> {
  readonly key: string;
  readonly value: (row: R) => Value | readonly string[];
}

export interface Choice {
  readonly search: string;
  readonly filters: ReadonlyMap<string, ReadonlySet<string>>; // by column
  readonly sort: string; // a column's key; "-key": descending
}

const PREFIX = "f.";

/** The choice that a query string describes; parameters of unknown columns are ignored. */
export function choiceOf(query: URLSearchParams, columns: readonly { key: string }[], sort: string): Choice {
  const known = new Set(columns.map((column) => column.key));
  const filters = new Map<string, Set<string>>();
  for (const [name, value] of query) {
    const key = name.slice(PREFIX.length);
    if (!name.startsWith(PREFIX) || !known.has(key)) continue;
    filters.set(key, (filters.get(key) ?? new Set()).add(value));
  }
  const asked = query.get("sort") ?? "";
  return { search: query.get("q") ?? "", filters, sort: known.has(asked.replace(/^-/, "")) ? asked : sort };
}

export const filterName = (key: string): string => PREFIX + key;

/** The rows that match, in order. Rows without a value come last, in either direction. */
export function chosen<R>(rows: readonly R[], columns: readonly Readable<R>[], choice: Choice): R[] {
  const byKey = new Map(columns.map((column) => [column.key, column]));
  const words = choice.search.toLowerCase().split(/\s+/).filter(Boolean);
  const filters = [...choice.filters].flatMap(([key, wanted]) => {
    const column = byKey.get(key);
    return column ? [{ column, wanted }] : [];
  });
  const found = rows.filter(
    (row) =>
      filters.every(({ column, wanted }) => matches(column.value(row), wanted)) &&
      (words.length === 0 || contains(row, columns, words)),
  );
  const column = byKey.get(choice.sort.replace(/^-/, ""));
  return column ? ordered(found, column, choice.sort.startsWith("-")) : found;
}

function matches(value: Value | readonly string[], wanted: ReadonlySet<string>): boolean {
  if (Array.isArray(value)) return value.some((one) => wanted.has(one));
  return wanted.has(value === null || value === undefined ? "" : String(value));
}

function contains<R>(row: R, columns: readonly Readable<R>[], words: readonly string[]): boolean {
  const text = columns
    .flatMap((column) => column.value(row))
    .join("\n")
    .toLowerCase();
  return words.every((one) => text.includes(one));
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function ordered<R>(rows: readonly R[], column: Readable<R>, descending: boolean): R[] {
  const keyed = rows.map((row) => ({ row, value: sortable(column.value(row)) }));
  const sign = descending ? -1 : 1;
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null);
    return sign * compare(a.value, b.value);
  });
  return keyed.map(({ row }) => row);
}

function sortable(value: Value | readonly string[]): string | number | null {
  if (Array.isArray(value)) return value.length ? value.join(" ") : null;
  if (value === null || value === undefined || value === "") return null;
  return typeof value === "boolean" ? Number(value) : (value as string | number);
}

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
}

/** The values of a column with the number of rows of each, most frequent first. */
export function counted<R>(rows: readonly R[], column: Readable<R>): [string, number][] {
  const counts = new Map<string, number>();
  for (const row of rows) {
    const value = column.value(row);
    for (const one of Array.isArray(value) ? value : [value]) {
      const text = one === null || one === undefined ? "" : String(one);
      counts.set(text, (counts.get(text) ?? 0) + 1);
    }
  }
  return [...counts].sort((a, b) => b[1] - a[1] || collator.compare(a[0], b[0]));
}
