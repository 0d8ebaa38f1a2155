/** Small pieces that several pages use. */
import type { ComponentChildren } from "preact";
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, type Loaded, offline, revision } from "../api/client";
import { now } from "../state/clock";
import type { Span } from "../state/definitions";
import { language } from "../state/preferences";
import { carried, go, href, partsOf, path } from "../state/url";
import { named } from "../state/vocabulary";
import { type Key, t, word } from "../words";
import { classOf, SIGNS } from "./classes";
import { copyText } from "./clipboard";
import { Covers, explained, tip } from "./figures";
import { ageOf, duration, momentWithZone, NONE, percent } from "./format";
import { Icon } from "./icon";
import { markMore } from "./more";
import { keepInSight } from "./widths";

// ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A link within the console; scope and time range go along. */
export function Link({
  to,
  query,
  children,
  ...more
}: {
  to: string;
  query?: Record<string, string> | readonly (readonly [string, string])[]; // pairs, if a name has several values
  children: ComponentChildren;
  class?: string;
  "aria-current"?: "page" | undefined;
  title?: string;
}) {
  const wanted = carried();
  for (const [name, value] of Array.isArray(query) ? query : Object.entries(query ?? {})) wanted.append(name, value);
  const text = wanted.toString();
  const follow = (event: MouseEvent): void => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to, wanted);
    scrollTo(0, 0);
  };
  return (
    <a {...more} href={href(to) + (text ? `?${text}` : "")} onClick={follow}>
      {children}
    </a>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState<string | null>(null); // a row of a table may show another text meanwhile
  const copy = (): void => {
    void copyText(text).then((copied) => {
      setDone(copied ? text : null);
      setTimeout(() => setDone(null), 1500);
    });
  };
  return (
    <button
      type="button"
      class="copy"
      title={t("copy", { text })}
      aria-label={t("copy", { text: label ?? text })}
      onClick={copy}
    >
      <Icon name={done === text ? "check" : "copy"} />
    </button>
  );
}

/** A command to run elsewhere, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code>{text}</code>
      <Copy text={text} />
    </div>
  );
}

// ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────

export function ClassBadge({ name }: { name: string | null | undefined }) {
  const known = classOf(name);
  return (
    <span class={`badge c-${known}`}>
      <span aria-hidden="true">{SIGNS[known]}</span> {word(`class.${name ?? "unknown"}`, name ?? "unknown")}
    </span>
  );
}

type Tone = "good" | "warn" | "bad" | "plain";

export function Tag({ tone = "plain", children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  const sign = { good: "✓ ", warn: "! ", bad: "✕ ", plain: "" }[tone];
  return (
    <span class={`tag ${tone}`} title={title}>
      {sign && <span aria-hidden="true">{sign}</span>}
      {children}
    </span>
  );
}

/** How long ago something was, with the moment on hover. */
export function Age({ at, ago = false }: { at: string | number | null | undefined; ago?: boolean }) {
  const age = ageOf(at, now.value);
  if (age === null) return <span class="muted">{NONE}</span>;
  const text = duration(age);
  return (
    <time dateTime={typeof at === "string" ? at : undefined} title={momentWithZone(at)}>
      {ago ? t("ago", { time: text }) : text}
    </time>
  );
}

/** A ratio as a bar with its number; above 100 % the bar is full and marked. */
export function Meter({
  value,
  text,
  marks = [],
}: {
  value: number | null | undefined;
  text?: string;
  marks?: readonly { at: number; label: string }[];
}) {
  if (value === null || value === undefined)
    return (
      <span class="muted" title={t("value.not_measured")}>
        {NONE}
      </span>
    );
  return (
    <span class="meter">
      <span class="track" aria-hidden="true">
        <span
          class={value > 1 ? "fill over" : "fill"}
          style={{ width: `${Math.min(100, Math.max(0, value * 100))}%` }}
        />
        {marks.map((mark) => (
          <span key={mark.label} class="mark" title={mark.label} style={{ left: `${Math.min(100, mark.at * 100)}%` }} />
        ))}
      </span>
      <span class="num">{text ?? percent(value)}</span>
    </span>
  );
}

/** Terms with their values. A value that is a number has the code of its definition. */
export function Facts({ rows }: { rows: readonly FactRow[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value, about, figure]) => (
        <div key={name}>
          <dt>
            {figure || about ? (
              <span class="heading" tabIndex={0} {...tip([explained(figure), about].filter(Boolean).join("\n"))}>
                {t(name)}
              </span>
            ) : (
              t(name)
            )}
            <Covers figure={figure} />
          </dt>
          <dd data-figure={figure}>
            {value === null || value === undefined || value === "" ? <span class="muted">{NONE}</span> : value}
          </dd>
        </div>
      ))}
    </dl>
  );
}

export type FactRow = readonly [term: Key, value: ComponentChildren, about?: string | undefined, figure?: string];

// ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────────

interface PanelProps {
  readonly title: ComponentChildren;
  readonly note?: ComponentChildren; // beside the title
  readonly actions?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly stale?: boolean; // the values are old: they are greyed
  readonly of?: string; // key: of what the numbers are, if not of the subject of the page
}

export function Panel({ title, note, actions, children, stale, of }: PanelProps) {
  return (
    <section class={stale ? "panel stale" : "panel"} data-key={of}>
      <header>
        <h2>{title}</h2>
        {note && <span class="muted small">{note}</span>}
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

/** What shows its title only, until it is opened. */
export function Fold({
  title,
  note,
  children,
}: {
  title: ComponentChildren;
  note?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <details class="fold">
      <summary>
        {title}
        {note && <span class="muted small">{note}</span>}
      </summary>
      {children}
    </details>
  );
}

interface FigureProps {
  readonly title: string;
  readonly figure: string; // code of its definition
  readonly value: ComponentChildren;
  readonly beside?: ComponentChildren; // a second number, such as the whole
  readonly note?: ComponentChildren;
  readonly of?: string | undefined; // key: of what it is the number, if not of the subject of the page
  readonly span?: Span; // what it covers, if not the window of the analysis
  readonly origin?: Origin; // source, query and age, below the definition
  readonly about?: ComponentChildren; // what else there is to say; on hover and by keyboard
  readonly tone?: Tone;
  readonly stale?: boolean;
}

/** One large number, with its definition and the time that it covers. */
export function Figure({ title, figure, value, beside, note, of, span, origin, about, tone, stale }: FigureProps) {
  return (
    <div class={`figure ${tone ?? ""}${stale ? " stale" : ""}`}>
      <span class="figure-title">
        {title}
        <About of={title}>
          {definition(explained(figure, span)?.replace("\n", " ") ?? "", origin)}
          {about}
        </About>
      </span>
      <Covers figure={figure} span={span} />
      <span class="figure-value">
        <span data-figure={figure} data-key={of}>
          {value}
        </span>
        {beside}
      </span>
      {note && <span class="figure-note">{note}</span>}
    </div>
  );
}

/** A small sign that shows a definition. */
export function About({ of = "", children }: { of?: string; children: ComponentChildren }) {
  const root = useRef<HTMLSpanElement>(null);
  const [right, setRight] = useState(false);
  const aim = (): void => setRight((root.current?.getBoundingClientRect().left ?? 0) > innerWidth - 360);
  return (
    <span class={right ? "about right" : "about"} ref={root} onMouseEnter={aim} onFocusCapture={aim}>
      <button type="button" class="about-sign" aria-label={`${t("about")} ${of}`.trim()}>
        <Icon name="info" />
      </button>
      <span class="about-text" role="tooltip">
        {children}
      </span>
    </span>
  );
}

export interface Origin {
  readonly promql?: string | null | undefined;
  readonly source?: string | null | undefined;
  readonly at?: string | null | undefined; // when it was measured
}

/** Definition, source, query and age of a number. */
export function definition(text: string, { promql, source, at }: Origin = {}): ComponentChildren {
  const age = ageOf(at, now.value);
  return (
    <>
      {text && <span>{text}</span>}
      {source && <span class="fainter">{t("about.source", { source })}</span>}
      {age !== null && <span class="fainter">{t("about.age", { time: duration(age) })}</span>}
      {promql && <code>{promql}</code>}
    </>
  );
}

/** Text of the API in which `code` is marked by backticks; placeholders are replaced by the names that are known. */
export function Prose({ text, names = {} }: { text: string; names?: Record<string, string> }) {
  const filled = text.replace(/\b(NAMESPACE|POD|NODE)\b/g, (whole) => names[whole] ?? whole);
  return (
    <>
      {filled.split("`").map((part, place) =>
        place % 2 === 1 ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: the parts of one text keep their places
          <span key={place} class="inline-code">
            <code>{part}</code>
            <Copy text={part} />
          </span>
        ) : (
          part
        ),
      )}
    </>
  );
}

interface ScrollProps {
  readonly all?: boolean;
  readonly name?: string; // of the table in it
  readonly rows?: number; // of the table
  readonly children: ComponentChildren;
}

/** A box that scrolls if its content is larger; then it can be reached and scrolled by keyboard. */
export function Scroll({ all = false, name, rows, children }: ScrollProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const root = box.current;
    if (!root) return;
    const check = (): void => {
      if (root.scrollWidth > root.clientWidth || root.scrollHeight > root.clientHeight) root.tabIndex = 0;
      else root.removeAttribute("tabindex");
      markMore(root);
    };
    keepInSight(root);
    check();
    const observer = new ResizeObserver(() => {
      requestAnimationFrame(() => keepInSight(root)); // not at once: it changes what is observed
      check();
    });
    for (const box of [root, ...root.querySelectorAll("table")]) observer.observe(box);
    const moved = (): void => markMore(root);
    root.addEventListener("scroll", moved, { passive: true });
    return () => {
      observer.disconnect();
      root.removeEventListener("scroll", moved);
    };
  });
  return (
    <div class={all ? "scroll all" : "scroll"} ref={box} data-table={name} data-rows={name && rows}>
      {children}
    </div>
  );
}

export function Skeleton({ rows = 6 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label={t("loading")}>
      {Array.from({ length: rows }, (_, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <span key={place} style={{ width: `${95 - ((place * 17) % 40)}%` }} />
      ))}
    </div>
  );
}

/** What went wrong. The API's own sentence is in English; in Chinese the name of its code says it. */
export function errorText(error: ApiError): string {
  const own = word(`failed.${error.message}`, "");
  if (own) return own;
  const name = named("error", error.code);
  return language.value === "en" || name === error.code ? error.message : name;
}

export function Failed({ error }: { error: ApiError }) {
  if (error.code === "OBJECT_UNKNOWN") return <Unknown error={error} />;
  return (
    <div class="failed" role="alert">
      <Icon name="warning" />
      <div>
        <b>{t("failed.title")}</b>
        <p>{errorText(error)}</p>
        {error.hint && language.value === "en" && <p class="muted">{error.hint}</p>}
        <p class="muted mono">{error.code}</p>
        <button
          type="button"
          class="button"
          onClick={() => {
            revision.value += 1;
          }}
        >
          {t("retry")}
        </button>
      </div>
    </div>
  );
}

/** An address of something that the last analysis does not have, such as a pod that ended. */
function Unknown({ error }: { error: ApiError }) {
  const [list = "", ...names] = partsOf(path.value);
  return (
    <div class="notice" role="alert">
      <Icon name="info" />
      <span>
        <b>{t("unknown.title")}</b> {language.value === "en" && `(${error.message}.)`} {t("unknown.why")}{" "}
        <Link to={list}>{t("unknown.list")}</Link> ·{" "}
        <Link to="events" query={{ q: names.at(-1) ?? "" }}>
          {t("unknown.events")}
        </Link>
      </span>
    </div>
  );
}

/** An error of the console itself stays within one page. */
export class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };
  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return <Empty title={t("failed.title")} why={t("failed.console", { text: String(this.state.error) })} />;
  }
}

/** Why there is nothing, and what to do about it. */
export function Empty({
  title,
  why,
  command,
  doctor = false,
  children,
}: {
  title: string;
  why?: string;
  command?: string;
  doctor?: boolean; // the cause may be a fault
  children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <b>{title}</b>
      {why && <p class="muted">{why}</p>}
      {command && <Command text={command} />}
      {doctor && <ToDoctor />}
      {children}
    </div>
  );
}

/** Where something is missing or unknown, the doctor knows which link of the chain is broken. */
export function ToDoctor() {
  return (
    <Link to="doctor" class="to-doctor">
      {t("empty.doctor")}
    </Link>
  );
}

/** The three states of every request. Old data stays, greyed and marked. */
export function Shown<T>({
  of,
  children,
  rows,
}: {
  of: Loaded<T>;
  children: (data: T) => ComponentChildren;
  rows?: number;
}) {
  if (of.state === "loading") return <Skeleton rows={rows ?? 6} />;
  if (of.state === "failed") return <Failed error={of.error} />;
  return (
    <div class={of.error ? "stale-data" : ""}>
      {of.error && !offline.value && (
        <p class="notice warn" role="status">
          <Icon name="warning" /> {t("stale.request", { time: duration((now.value - of.at) / 1000) })}{" "}
          {errorText(of.error)}
        </p>
      )}
      {children(of.data)}
    </div>
  );
}

// ── dialogs ───────────────────────────────────────────────────────────────────────────────────────────────────────

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    return () => before?.focus();
  }, []);
  return (
    <dialog ref={box} onClose={close} onCancel={close} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="button quiet" aria-label={t("close")} onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {children}
    </dialog>
  );
}
