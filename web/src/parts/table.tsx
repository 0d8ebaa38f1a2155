/** A table of many rows: search, filters, order and columns, all in the URL; only visible rows are in the document. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Part } from "../api/shapes";
import type { Span } from "../state/definitions";
import { hiddenColumns, hideColumns } from "../state/preferences";
import { apiRoot, place, setQuery } from "../state/url";
import { type Key, t } from "../words";
import { copyText, curl } from "./clipboard";
import { csv, download } from "./csv";
import { Covers, explained, Said, tip } from "./figures";
import { number } from "./format";
import { Icon } from "./icon";
import { Menu } from "./menu";
import { markMore } from "./more";
import { current } from "./partnote";
import { type Choice, choiceOf, chosen, counted, filterName, prepared, type Readable, toggled } from "./rows";
import { reused, type Part as Stretch, visible } from "./visible";
import { keepInSight } from "./widths";

interface ColumnOf<R> extends Readable<R> {
  readonly title: Key;
  readonly span?: Span; // what the numbers cover, if not the window of the analysis
  readonly about?: Key; // what else there is to say
  readonly show?: (row: R) => ComponentChildren;
  readonly filter?: (value: string) => string; // makes the column filterable; returns the name of a value
  readonly optional?: boolean; // hidden until it is chosen
  readonly width?: number; // in px
  readonly long?: boolean; // names of any length, which have two lines before a main column is out of sight
  readonly wrap?: boolean; // long text, shown in two lines, in a tall table in four
  readonly part?: Part["name"]; // where the values come from; greyed while that part is not current
  readonly promql?: string; // the metric behind the values, on hover
  readonly oldestFirst?: boolean; // moments that are shown as ages: the first click puts the longest first
}

/** A column of numbers has the code of their definition, unless they are names or moments. */
export type Column<R> = ColumnOf<R> &
  (
    | { readonly numeric: true; readonly figure: string }
    | { readonly numeric: true; readonly figure?: undefined; readonly names: "index" | "moment" }
    | { readonly numeric?: undefined; readonly figure?: string }
  );

interface Props<R> {
  readonly name: string; // of the file and of the remembered columns
  readonly label: string;
  readonly rows: readonly R[];
  readonly columns: readonly Column<R>[];
  readonly main: readonly string[]; // keys of what the page is about: first, and whole in a window of 1,280 px
  readonly sort: string;
  readonly rowKey: (row: R) => string;
  readonly open?: (row: R) => void;
  readonly empty: ComponentChildren;
  readonly plain?: boolean; // a short table without a toolbar
  readonly tall?: boolean; // rows of four lines
  readonly parts?: readonly Part[];
  readonly source?: string; // the request that the rows come from
}

const ROW = 38; // px
const TALL = 76; // px
const BURST = 100; // ms; letters that follow each other faster are searched for together
const PAUSE = 40; // ms after the last letter of a burst

export function Table<R>(props: Props<R>) {
  const { rows, columns, name } = props;
  const choice = props.plain ? NO_CHOICE(props.sort) : choiceOf(place.value.query, columns, props.sort);
  const key = JSON.stringify([choice.search, [...choice.filters].map(([k, v]) => [k, [...v]]), choice.sort]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key stands for the choice
  const found = useMemo(() => chosen(rows, columns, choice), [rows, columns, key]);
  const [remembered, remember] = useState(() => initialHidden(name, columns));
  const hidden = (props.plain ? null : hiddenBy(place.value.query, columns)) ?? remembered;
  const shown = mainFirst(columns, props.main).filter((column) => !hidden.includes(column.key));
  usePrepared(props.plain ? NO_ROWS : rows, columns, shown);
  const hide = (next: string[]): void => {
    hideColumns(name, [...next, "-"]);
    remember(next);
    setQuery(
      {
        cols: columns
          .filter((one) => !next.includes(one.key))
          .map((one) => one.key)
          .join(","),
      },
      { replace: false },
    );
  };
  return (
    <div class="table-block">
      {!props.plain && <Toolbar {...props} choice={choice} found={found} shown={shown} hidden={hidden} hide={hide} />}
      {found.length === 0 ? (
        rows.length === 0 ? (
          props.empty
        ) : (
          <NoMatch />
        )
      ) : (
        <Body {...props} found={found} shown={shown} choice={choice} />
      )}
    </div>
  );
}

/** The columns that the page is about, in its order, then the others. */
export function mainFirst<C extends { readonly key: string }>(columns: readonly C[], main: readonly string[]): C[] {
  const place = (column: C): number => (main.includes(column.key) ? main.indexOf(column.key) : main.length);
  return [...columns].sort((a, b) => place(a) - place(b)); // a stable sort
}

const NO_ROWS: readonly never[] = [];

/** Prepares searches and orders while the browser has nothing else to do. */
function usePrepared<R>(rows: readonly R[], columns: readonly Column<R>[], shown: readonly Column<R>[]): void {
  const keys = shown.map((column) => column.key).join();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the keys stand for the columns that are shown
  useEffect(() => {
    if (rows.length < MANY) return;
    const steps = prepared(rows, columns, shown);
    let done = false;
    const work = (left: { timeRemaining: () => number }): void => {
      do done ||= steps.next().done ?? false;
      while (!done && left.timeRemaining() > STEP);
      if (!done) stop = whenIdle(work);
    };
    let stop = whenIdle(work);
    return () => {
      done = true;
      stop();
    };
  }, [rows, columns, keys]);
}

const MANY = 1000; // rows; with fewer, everything is quick
const STEP = 8; // ms that one step may take

/** Calls when the browser is idle; returns what prevents it. Safari has no idle callbacks. */
function whenIdle(work: (left: { timeRemaining: () => number }) => void): () => void {
  if (typeof requestIdleCallback === "function") {
    const number = requestIdleCallback(work);
    return () => cancelIdleCallback(number);
  }
  const timer = setTimeout(() => work({ timeRemaining: () => 0 }), 50);
  return () => clearTimeout(timer);
}

const NO_CHOICE = (sort: string): Choice => ({ search: "", filters: new Map(), sort });

function initialHidden<R>(name: string, columns: readonly Column<R>[]): string[] {
  const remembered = hiddenColumns(name);
  return remembered.length
    ? remembered.filter((one) => one !== "-")
    : columns.filter((one) => one.optional).map((one) => one.key);
}

/** The columns that a link hides; null: it does not say. The first column is always shown. */
export function hiddenBy(query: URLSearchParams, columns: readonly { key: string }[]): string[] | null {
  const wanted = (query.get("cols") ?? "").split(",").filter((one) => columns.some((column) => column.key === one));
  return wanted.length === 0
    ? null
    : columns
        .slice(1)
        .map((one) => one.key)
        .filter((one) => !wanted.includes(one));
}

function NoMatch() {
  return (
    <div class="empty">
      <p>{t("table.no_match")}</p>
      <button type="button" class="button" onClick={clearChoice}>
        {t("table.clear")}
      </button>
    </div>
  );
}

function clearChoice(): void {
  const changes: Record<string, null> = { q: null };
  for (const name of place.value.query.keys()) if (name.startsWith("f.")) changes[name] = null;
  setQuery(changes, { replace: false });
}

// ── controls ──────────────────────────────────────────────────────────────────────────────────────────────────────

interface ToolbarProps<R> extends Props<R> {
  readonly choice: Choice;
  readonly found: readonly R[];
  readonly shown: readonly Column<R>[];
  readonly hidden: readonly string[];
  readonly hide: (next: string[]) => void;
}

function Toolbar<R>(props: ToolbarProps<R>) {
  const { choice, found, rows, columns, hidden } = props;
  const filterable = columns.filter((column) => column.filter);
  const first = filterable.filter((column) => !hidden.includes(column.key) || choice.filters.has(column.key));
  const rest = filterable.filter((column) => !first.includes(column));
  const chip = (column: Column<R>) => (
    <Filter key={column.key} column={column} rows={rows} wanted={choice.filters.get(column.key) ?? NOTHING} />
  );
  return (
    <div class="toolbar">
      <div class="chips">
        <Search value={choice.search} />
        {first.map(chip)}
        {rest.length > 0 && (
          <Menu label={t("table.more_filters")} icon="filter" kind="chip" hideLabel>
            {() => <div class="chips column">{rest.map(chip)}</div>}
          </Menu>
        )}
        {(choice.search !== "" || choice.filters.size > 0) && (
          <button type="button" class="link" onClick={clearChoice}>
            {t("table.clear")}
          </button>
        )}
      </div>
      <div class="tools">
        <span class="count" aria-live="polite">
          {found.length === rows.length ? (
            <Said text="table.rows" numbers={{ n: ["list.rows", number(rows.length)] }} />
          ) : (
            <Said
              text="table.rows_of"
              numbers={{ n: ["list.rows_found", number(found.length)], all: ["list.rows", number(rows.length)] }}
            />
          )}
        </span>
        <Columns columns={columns} hidden={hidden} hide={props.hide} />
        <Export {...props} />
      </div>
    </div>
  );
}

const NOTHING: ReadonlySet<string> = new Set();

/** Searches at once; while letters follow each other fast, after the last one: browsers limit changes of the URL. */
function Search({ value }: { value: string }) {
  const [typed, setTyped] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const last = useRef(0);
  const sent = useRef(value);
  useLayoutEffect(() => {
    if (value === sent.current) return; // our own search: more may have been typed since
    sent.current = value;
    setTyped(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []); // another page is not searched
  const type = (text: string): void => {
    const fast = performance.now() - last.current < BURST;
    last.current = performance.now();
    setTyped(text);
    clearTimeout(timer.current);
    const search = (): void => {
      sent.current = text;
      setQuery({ q: text });
    };
    if (fast) timer.current = setTimeout(search, PAUSE);
    else search();
  };
  return (
    <label class="search">
      <Icon name="search" />
      <span class="sr">{t("table.search")}</span>
      <input
        type="search"
        value={typed}
        placeholder={t("table.search")}
        data-search
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          if (typed) type("");
          else event.currentTarget.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </label>
  );
}

function Filter<R>({ column, rows, wanted }: { column: Column<R>; rows: readonly R[]; wanted: ReadonlySet<string> }) {
  const set = (values: readonly string[]): void => setQuery({ [filterName(column.key)]: values }, { replace: false });
  const label = wanted.size
    ? `${t(column.title)}: ${[...wanted].map((one) => column.filter!(one)).join(", ")}`
    : t(column.title);
  return (
    <Menu label={label} kind={wanted.size ? "chip on" : "chip"}>
      {() => <Choices column={column} rows={rows} wanted={wanted} set={set} />}
    </Menu>
  );
}

interface ChoicesProps<R> {
  readonly column: Column<R>;
  readonly rows: readonly R[];
  readonly wanted: ReadonlySet<string>;
  readonly set: (values: readonly string[]) => void;
}

function Choices<R>({ column, rows, wanted, set }: ChoicesProps<R>) {
  const values = useMemo(() => counted(rows, column).slice(0, 200), [rows, column]);
  return (
    <fieldset class="choices">
      <legend class="sr">{t(column.title)}</legend>
      {values.map(([value, count]) => (
        <label key={value}>
          <input
            type="checkbox"
            checked={wanted.has(value)}
            onChange={(event) => set(toggled(wanted, value, event.currentTarget.checked))}
          />
          <span class="grow">{column.filter!(value) || t("value.none")}</span>
          <span class="muted num" data-figure="list.rows_by_value" data-key={value}>
            {number(count)}
          </span>
        </label>
      ))}
      {wanted.size > 0 && (
        <button type="button" class="link" onClick={() => set([])}>
          {t("table.clear")}
        </button>
      )}
    </fieldset>
  );
}

function Columns<R>({
  columns,
  hidden,
  hide,
}: {
  columns: readonly Column<R>[];
  hidden: readonly string[];
  hide: (next: string[]) => void;
}) {
  return (
    <Menu label={t("table.columns")} icon="columns" kind="button quiet" hideLabel>
      {() => (
        <fieldset class="choices">
          <legend class="sr">{t("table.columns")}</legend>
          {columns.slice(1).map((column) => (
            <label key={column.key}>
              <input
                type="checkbox"
                checked={!hidden.includes(column.key)}
                onChange={(event) => hide(toggled(hidden, column.key, !event.currentTarget.checked))}
              />
              {t(column.title)}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}

function Export<R>({ found, columns, name, source }: ToolbarProps<R>) {
  const cells = (row: R): unknown[] => columns.map((column) => flat(column.value(row)));
  const header = columns.map((column) => column.key);
  const asCsv = (): void => download(`${name}.csv`, csv(header, found.map(cells)), "text/csv");
  const asJson = (): void => {
    const rows = found.map((row) =>
      Object.fromEntries(columns.map((column) => [column.key, column.value(row) ?? null])),
    );
    download(`${name}.json`, JSON.stringify(rows, null, 1), "application/json");
  };
  return (
    <Menu label={t("table.export")} icon="download" kind="button quiet" hideLabel>
      {(close) => (
        <div class="choices">
          <button
            type="button"
            class="item"
            onClick={() => {
              asCsv();
              close();
            }}
          >
            {t("table.csv", { n: number(found.length) })}
          </button>
          <button
            type="button"
            class="item"
            onClick={() => {
              asJson();
              close();
            }}
          >
            {t("table.json", { n: number(found.length) })}
          </button>
          {source && (
            <button
              type="button"
              class="item"
              onClick={() => {
                void copyText(curl(new URL(apiRoot + source.replace(/^\//, ""), location.origin).href));
                close();
              }}
            >
              {t("table.curl")}
            </button>
          )}
        </div>
      )}
    </Menu>
  );
}

const flat = (value: unknown): unknown => (Array.isArray(value) ? value.join(" ") : value);

// ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────

interface BodyProps<R> extends Props<R> {
  readonly found: readonly R[];
  readonly shown: readonly Column<R>[];
  readonly choice: Choice;
}

function Body<R>(props: BodyProps<R>) {
  const { found, shown, open } = props;
  const frame = useRef<HTMLDivElement>(null);
  const size = props.tall ? TALL : ROW;
  const { first, end } = useVisible(frame, found.length, size);
  const before = first * size;
  const after = (found.length - end) * size;
  const seen = found.slice(first, end);
  const places = usePlaces(frame, seen.map(props.rowKey));
  useLayoutEffect(() => keepInSight(frame.current!)); // other rows have other names
  const old = shown.map((column) => (column.part && props.parts && !current(props.parts, column.part) ? " old" : ""));
  return (
    <div
      class={props.tall ? "table-frame tall" : "table-frame"}
      ref={frame}
      tabIndex={0}
      role="region"
      aria-label={props.label}
      data-table={props.name}
      data-rows={found.length}
    >
      <table aria-rowcount={found.length + 1}>
        <thead>
          <tr>
            {shown.map((column) => (
              <Heading
                key={column.key}
                column={column}
                choice={props.choice}
                plain={props.plain ?? false}
                main={props.main.includes(column.key)}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <tr aria-hidden="true" style={{ height: `${before}px` }} />}
          {seen.map((row, at) => {
            return (
              <tr
                key={places[at]}
                data-place={places[at]}
                data-key={props.rowKey(row)}
                aria-rowindex={first + at + 2}
                class={open ? "opens" : ""}
                onClick={open ? (event) => openUnlessLink(event, () => open(row)) : undefined}
              >
                {shown.map((column, place) => (
                  <td
                    key={column.key}
                    data-figure={column.figure}
                    class={`${column.numeric ? "num" : ""}${column.wrap ? " wrap" : ""}${column.long ? " long" : ""}${old[place]}`}
                  >
                    {column.wrap || column.long ? (
                      <span class={column.wrap ? "lines" : "name"}>{cellOf(column, row)}</span>
                    ) : (
                      cellOf(column, row)
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
          {after > 0 && <tr aria-hidden="true" style={{ height: `${after}px` }} />}
        </tbody>
      </table>
    </div>
  );
}

function cellOf<R>(column: Column<R>, row: R): ComponentChildren {
  if (column.show) return column.show(row);
  const value = flat(column.value(row));
  return value === null || value === undefined || value === "" ? <span class="muted">–</span> : String(value);
}

/** A click on a row opens it, unless it was on a link or button of the row, or the end of a selection. */
function openUnlessLink(event: MouseEvent, open: () => void): void {
  if ((event.target as Element).closest("a, button") || getSelection()?.toString()) return;
  open();
}

interface HeadingProps<R> {
  readonly column: Column<R>;
  readonly choice: Choice;
  readonly plain: boolean;
  readonly main: boolean;
}

function Heading<R>({ column, choice, plain, main }: HeadingProps<R>) {
  const descending = choice.sort === `-${column.key}`;
  const sorted = descending || choice.sort === column.key;
  const falling = column.oldestFirst ? !descending : descending; // of what is shown: an early moment is a large age
  const next = sorted
    ? descending
      ? column.key
      : `-${column.key}`
    : column.numeric && !column.oldestFirst
      ? `-${column.key}`
      : column.key;
  return (
    <th
      scope="col"
      class={column.numeric ? "num" : ""}
      data-figure={column.figure}
      data-names={"names" in column ? column.names : undefined}
      data-main={main || undefined}
      data-long={column.long || undefined}
      style={column.width ? { minWidth: `${column.width}px` } : {}}
      aria-sort={sorted ? (falling ? "descending" : "ascending") : "none"}
    >
      {plain ? (
        <span class="heading" tabIndex={0} {...tip(explanation(column))}>
          {t(column.title)}
        </span>
      ) : (
        <button
          type="button"
          onClick={() => setQuery({ sort: next }, { replace: false })}
          {...tip(explanation(column))}
        >
          {t(column.title)}
          <span class="arrow" aria-hidden="true">
            {sorted ? (falling ? "↓" : "↑") : ""}
          </span>
        </button>
      )}
      <Covers figure={column.figure} span={column.span} />
    </th>
  );
}

/** Definition, source and metric of a column. */
function explanation<R>({ figure, span, about, part, promql }: Column<R>): string | undefined {
  const lines = [
    explained(figure, span),
    about && t(about),
    part && t("about.source", { source: t(`part.${part}`) }),
    promql && `${t("about.promql")}: ${promql}`,
  ].filter(Boolean);
  return lines.length ? lines.join("\n") : undefined;
}

/** The rows that are in the document: those that can be seen, and a few above and below. All rows have one height. */
function useVisible(frame: { current: HTMLDivElement | null }, count: number, size: number): Stretch {
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const { top, height } = seen;
  useLayoutEffect(() => {
    const box = frame.current;
    if (!box) return;
    const look = (): void => {
      const now = { top: box.scrollTop, height: box.clientHeight };
      // a new stretch is drawn when another row comes into view, not at every pixel
      setSeen((old) => (sameRows(old, now, size) ? old : now));
      markMore(box);
    };
    const observer = new ResizeObserver(() => {
      requestAnimationFrame(() => keepInSight(box)); // not at once: it changes what is observed
      look();
    });
    observer.observe(box);
    if (box.firstElementChild) observer.observe(box.firstElementChild); // columns come and go
    box.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", look);
    };
  }, [frame, size]);
  return visible(count, size, top, height);
}

type Seen = { readonly top: number; readonly height: number };
const sameRows = (a: Seen, b: Seen, size: number): boolean =>
  a.height === b.height && Math.floor(a.top / size) === Math.floor(b.top / size);

/** The place in the document of each row; rows that come take over the places of rows that go. */
function usePlaces(frame: { current: HTMLDivElement | null }, keys: readonly string[]): readonly number[] {
  const known = useRef<ReadonlyMap<string, number>>(new Map());
  const focused = frame.current?.contains(document.activeElement) && document.activeElement?.closest("tr");
  const kept = focused instanceof HTMLElement ? Number(focused.dataset.place ?? Number.NaN) : Number.NaN;
  const made = reused(known.current, keys, kept);
  known.current = made;
  return keys.map((key) => made.get(key)!);
}

const STEPS: Record<string, number> = { j: 1, k: -1 };

/** j and k move among the rows of the first table of the page. */
export function moveAmongRows(event: KeyboardEvent): void {
  if (twice("g", event)) toFirstRow();
  const step = STEPS[event.key];
  const frame = document.activeElement?.closest(".table-frame") ?? document.querySelector(".table-frame");
  if (!step || !frame) return;
  const links = [...frame.querySelectorAll<HTMLElement>("tbody tr td:first-child a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = links[at === -1 ? 0 : at + step];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  }
}

const SOON = 1_000; // ms between the two keys of g g
let last: { readonly key: string; readonly at: number } | null = null;

/** Whether a key was pressed a second time, soon after the first. */
function twice(key: string, event: KeyboardEvent): boolean {
  const again = event.key === key && last?.key === key && event.timeStamp - last.at < SOON;
  last = again ? null : { key: event.key, at: event.timeStamp };
  return again;
}

/** Rows far below are not drawn while others are shown: the first one is there once the table has moved. */
function toFirstRow(): void {
  const frame = document.activeElement?.closest(".table-frame") ?? document.querySelector(".table-frame");
  frame?.scrollTo(0, 0);
  requestAnimationFrame(() =>
    requestAnimationFrame(() => frame?.querySelector<HTMLElement>("tbody tr td:first-child a")?.focus()),
  );
}
