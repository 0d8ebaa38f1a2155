/** A table of many rows: search, filters, order and columns, all in the URL; only visible rows are in the document. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { hiddenColumns, hideColumns } from "../state/preferences";
import { place, setQuery } from "../state/url";
import { type Key, t } from "../words";
import { csv, download } from "./csv";
import { number } from "./format";
import { Icon } from "./icon";
import { Menu } from "./menu";
import { type Choice, choiceOf, chosen, counted, filterName, type Readable } from "./rows";

export interface Column<R> extends Readable<R> {
  readonly title: Key;
  readonly about?: Key; // a definition, on hover
  readonly show?: (row: R) => ComponentChildren;
  readonly filter?: (value: string) => string; // makes the column filterable; returns the name of a value
  readonly numeric?: boolean;
  readonly optional?: boolean; // hidden until it is chosen
  readonly width?: number; // in px
}

interface Props<R> {
  readonly name: string; // of the file and of the remembered columns
  readonly label: string;
  readonly rows: readonly R[];
  readonly columns: readonly Column<R>[];
  readonly sort: string;
  readonly rowKey: (row: R) => string;
  readonly open?: (row: R) => void;
  readonly empty: ComponentChildren;
  readonly search?: boolean;
  readonly extra?: ComponentChildren; // more controls beside the search
  readonly plain?: boolean; // a short table without a toolbar
}

const ROW = 38; // px
const DEBOUNCE = 150; // ms

export function Table<R>(props: Props<R>) {
  const { rows, columns, name } = props;
  const choice = props.plain ? NO_CHOICE(props.sort) : choiceOf(place.value.query, columns, props.sort);
  const key = JSON.stringify([choice.search, [...choice.filters].map(([k, v]) => [k, [...v]]), choice.sort]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key stands for the choice
  const found = useMemo(() => chosen(rows, columns, choice), [rows, columns, key]);
  const [hidden, setHidden] = useState(() => initialHidden(name, columns));
  const shown = columns.filter((column) => !hidden.includes(column.key));
  const hide = (next: string[]): void => {
    hideColumns(name, [...next, "-"]);
    setHidden(next);
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

const NO_CHOICE = (sort: string): Choice => ({ search: "", filters: new Map(), sort });

function initialHidden<R>(name: string, columns: readonly Column<R>[]): string[] {
  const remembered = hiddenColumns(name);
  return remembered.length
    ? remembered.filter((one) => one !== "-")
    : columns.filter((one) => one.optional).map((one) => one.key);
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
  const { choice, found, rows, columns } = props;
  return (
    <div class="toolbar">
      <Search value={choice.search} />
      {columns
        .filter((column) => column.filter)
        .map((column) => (
          <Filter key={column.key} column={column} rows={rows} wanted={choice.filters.get(column.key) ?? NOTHING} />
        ))}
      {props.extra}
      <span class="count" aria-live="polite">
        {found.length === rows.length
          ? t("table.rows", { n: number(rows.length) })
          : t("table.rows_of", { n: number(found.length), all: number(rows.length) })}
      </span>
      <Columns columns={columns} hidden={props.hidden} hide={props.hide} />
      <Export {...props} />
    </div>
  );
}

const NOTHING: ReadonlySet<string> = new Set();

function Search({ value }: { value: string }) {
  const [typed, setTyped] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => setTyped(value), [value]);
  const type = (text: string): void => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: text }), DEBOUNCE);
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
      {() => (
        <fieldset class="choices">
          <legend class="sr">{t(column.title)}</legend>
          {counted(rows, column)
            .slice(0, 200)
            .map(([value, count]) => (
              <label key={value}>
                <input
                  type="checkbox"
                  checked={wanted.has(value)}
                  onChange={(event) =>
                    set(event.currentTarget.checked ? [...wanted, value] : [...wanted].filter((one) => one !== value))
                  }
                />
                <span class="grow">{column.filter!(value) || t("value.none")}</span>
                <span class="muted num">{number(count)}</span>
              </label>
            ))}
          {wanted.size > 0 && (
            <button type="button" class="link" onClick={() => set([])}>
              {t("table.clear")}
            </button>
          )}
        </fieldset>
      )}
    </Menu>
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
    <Menu label={t("table.columns")} icon="columns" kind="button quiet">
      {() => (
        <fieldset class="choices">
          <legend class="sr">{t("table.columns")}</legend>
          {columns.slice(1).map((column) => (
            <label key={column.key}>
              <input
                type="checkbox"
                checked={!hidden.includes(column.key)}
                onChange={(event) =>
                  hide(
                    event.currentTarget.checked ? hidden.filter((one) => one !== column.key) : [...hidden, column.key],
                  )
                }
              />
              {t(column.title)}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}

function Export<R>({ found, columns, name }: ToolbarProps<R>) {
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
    <Menu label={t("table.export")} icon="download" kind="button quiet">
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
  const items = useVirtual(frame, found.length);
  const before = items[0]?.start ?? 0;
  const after = Math.max(0, found.length * ROW - (items.at(-1)?.end ?? 0));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls must be reachable by keyboard
    <div class="table-frame" ref={frame} tabIndex={0} role="region" aria-label={props.label} onKeyDown={moveAmongRows}>
      <table aria-rowcount={found.length + 1}>
        <thead>
          <tr>
            {shown.map((column) => (
              <Heading key={column.key} column={column} choice={props.choice} plain={props.plain ?? false} />
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <tr aria-hidden="true" style={{ height: `${before}px` }} />}
          {items.map((item) => {
            const row = found[item.index]!;
            return (
              <tr
                key={props.rowKey(row)}
                aria-rowindex={item.index + 2}
                class={open ? "opens" : ""}
                onClick={
                  open
                    ? (event) => {
                        if (!(event.target as Element).closest("a, button")) open(row);
                      }
                    : undefined
                }
              >
                {shown.map((column) => (
                  <td key={column.key} class={column.numeric ? "num" : ""}>
                    {column.show ? column.show(row) : String(flat(column.value(row)) ?? "–")}
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

function Heading<R>({ column, choice, plain }: { column: Column<R>; choice: Choice; plain: boolean }) {
  const descending = choice.sort === `-${column.key}`;
  const sorted = descending || choice.sort === column.key;
  const next = sorted ? (descending ? column.key : `-${column.key}`) : column.numeric ? `-${column.key}` : column.key;
  const title = column.about ? t(column.about) : undefined;
  return (
    <th
      scope="col"
      class={column.numeric ? "num" : ""}
      style={column.width ? { minWidth: `${column.width}px` } : {}}
      aria-sort={sorted ? (descending ? "descending" : "ascending") : "none"}
    >
      {plain ? (
        <span title={title}>{t(column.title)}</span>
      ) : (
        <button type="button" title={title} onClick={() => setQuery({ sort: next }, { replace: false })}>
          {t(column.title)}
          <span class="arrow" aria-hidden="true">
            {sorted ? (descending ? "↓" : "↑") : ""}
          </span>
        </button>
      )}
    </th>
  );
}

function useVirtual(frame: { current: HTMLDivElement | null }, count: number) {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [virtual] = useState(
    () =>
      new Virtualizer<HTMLDivElement, Element>({
        count,
        getScrollElement: () => frame.current,
        estimateSize: () => ROW,
        overscan: 12,
        initialRect: { width: 1280, height: 800 },
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
        onChange: () => redraw(undefined as never),
      }),
  );
  virtual.setOptions({ ...virtual.options, count });
  useEffect(() => virtual._didMount(), [virtual]);
  useEffect(() => virtual._willUpdate());
  return virtual.getVirtualItems();
}

/** j and k, or the arrow keys, move among the links of rows. */
function moveAmongRows(event: KeyboardEvent): void {
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  if (!step || event.target instanceof HTMLInputElement) return;
  const frame = event.currentTarget as HTMLElement;
  const links = [...frame.querySelectorAll<HTMLElement>("tbody tr td:first-child a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = links[at === -1 ? 0 : at + step];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  }
}
