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
  if (!column) return found;
  const order = orderOf(rows, column);
  const all = choice.sort.startsWith("-") ? order.falling() : order.rising;
  if (found.length === rows.length) return [...all];
  const wanted = new Set(found);
  return all.filter((row) => wanted.has(row));
}

function matches(value: Value | readonly string[], wanted: ReadonlySet<string>): boolean {
  if (Array.isArray(value)) return value.some((one) => wanted.has(one));
  return wanted.has(value === null || value === undefined ? "" : String(value));
}

function contains<R>(row: R, columns: readonly Readable<R>[], words: readonly string[]): boolean {
  const text = textOf(row, columns);
  return words.every((one) => text.includes(one));
}

// The text of a row and the order of a column are made once for each answer.
const texts = new WeakMap<readonly Readable<never>[], WeakMap<object, string>>();

function textOf<R>(row: R, columns: readonly Readable<R>[]): string {
  let known = texts.get(columns);
  if (!known) {
    known = new WeakMap();
    texts.set(columns, known);
  }
  let text = known.get(row as object);
  if (text === undefined) {
    text = "";
    for (const column of columns) {
      const value = column.value(row);
      if (value !== null && value !== undefined) text += `${Array.isArray(value) ? value.join("\n") : value}\n`;
    }
    text = text.toLowerCase();
    known.set(row as object, text);
  }
  return text;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

interface Keyed<R> {
  readonly row: R;
  readonly key: string | number;
}

/** All rows in the order of a column. */
class Order<R> {
  readonly rising: readonly R[];
  private fallen: readonly R[] | null = null;

  constructor(
    private readonly keyed: readonly Keyed<R>[],
    private readonly rest: readonly R[], // rows without a value
  ) {
    this.rising = [...keyed.map((one) => one.row), ...rest];
  }

  /** The other way round. Rows of the same value keep their order. */
  falling(): readonly R[] {
    if (this.fallen) return this.fallen;
    const found: R[] = [];
    for (let end = this.keyed.length; end > 0; ) {
      let begin = end - 1;
      while (begin > 0 && compare(this.keyed[begin - 1]!.key, this.keyed[begin]!.key) === 0) begin -= 1;
      for (let at = begin; at < end; at += 1) found.push(this.keyed[at]!.row);
      end = begin;
    }
    this.fallen = [...found, ...this.rest];
    return this.fallen;
  }
}

const orders = new WeakMap<object, Map<unknown, Order<never>>>();

function orderOf<R>(rows: readonly R[], column: Readable<R>): Order<R> {
  let known = orders.get(rows);
  if (!known) {
    known = new Map();
    orders.set(rows, known);
  }
  let order = known.get(column) as Order<R> | undefined;
  if (!order) {
    order = ordered(rows, column);
    known.set(column, order as Order<never>);
  }
  return order;
}

function ordered<R>(rows: readonly R[], column: Readable<R>): Order<R> {
  const known: R[] = [];
  const values: (string | number)[] = [];
  const rest: R[] = [];
  for (const row of rows) {
    const value = sortable(column.value(row));
    if (value === null) rest.push(row);
    else {
      known.push(row);
      values.push(value);
    }
  }
  const keys = keysOf(values);
  const keyed = known.map((row, at) => ({ row, key: keys[at]! }));
  keyed.sort((a, b) => compare(a.key, b.key));
  return new Order(keyed, rest);
}

const PLAIN = /^[a-z0-9./:-]*$/i;
const DIGITS = 16;

/** Keys to compare with < and >, so that names need not be compared by the rules of a language again and again. */
function keysOf(values: readonly (string | number)[]): readonly (string | number)[] {
  if (values.every((one) => typeof one === "number")) return values;
  const names = values.map(String);
  if (names.every((one) => PLAIN.test(one))) return names.map(padded);
  const ranks = new Map([...new Set(names)].sort(collator.compare).map((name, place) => [name, place]));
  return names.map((name) => ranks.get(name)!);
}

/** Names of pods, nodes and GPUs with numbers of the same length: node-2 comes before node-10. */
function padded(text: string): string {
  return text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(DIGITS, "0"));
}

function sortable(value: Value | readonly string[]): string | number | null {
  if (Array.isArray(value)) return value.length ? value.join(" ") : null;
  if (value === null || value === undefined || value === "") return null;
  return typeof value === "boolean" ? Number(value) : (value as string | number);
}

function compare(a: string | number, b: string | number): number {
  return a < b ? -1 : a > b ? 1 : 0;
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
