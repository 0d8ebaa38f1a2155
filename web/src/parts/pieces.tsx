/** Small pieces that several pages use. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError, Loaded } from "../api/client";
import { now } from "../state/clock";
import { carried, go, href } from "../state/url";
import { type Key, t, word } from "../words";
import { classOf, SIGNS } from "./classes";
import { ageOf, duration, momentWithZone, NONE, percent } from "./format";
import { Icon } from "./icon";

// ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A link within the console; scope and time range go along. */
export function Link({
  to,
  query,
  children,
  ...more
}: {
  to: string;
  query?: Record<string, string>;
  children: ComponentChildren;
  class?: string;
  "aria-current"?: "page" | undefined;
  title?: string;
}) {
  const wanted = carried();
  for (const [name, value] of Object.entries(query ?? {})) wanted.append(name, value);
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
  const [done, setDone] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
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
      <Icon name={done ? "check" : "copy"} />
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

/** A term with its value, for lists of facts. */
export function Facts({ rows }: { rows: readonly (readonly [Key, ComponentChildren, string?])[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value, about]) => (
        <div key={name}>
          <dt title={about}>{t(name)}</dt>
          <dd>{value === null || value === undefined || value === "" ? <span class="muted">{NONE}</span> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

// ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────────

export function Panel({
  title,
  actions,
  children,
  stale,
  id,
}: {
  title: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  stale?: boolean;
  id?: string;
}) {
  return (
    <section class={stale ? "panel stale" : "panel"} id={id}>
      <header>
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

/** One large number. `about`: its definition, source and query, on hover and by keyboard. */
export function Figure({
  title,
  value,
  note,
  about,
  tone,
}: {
  title: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  about?: ComponentChildren;
  tone?: Tone;
}) {
  return (
    <div class={`figure ${tone ?? ""}`}>
      <span class="figure-title">
        {title}
        {about && <About>{about}</About>}
      </span>
      <span class="figure-value">{value}</span>
      {note && <span class="figure-note">{note}</span>}
    </div>
  );
}

/** A small sign that shows a definition. */
export function About({ children }: { children: ComponentChildren }) {
  return (
    <span class="about">
      <button type="button" class="about-sign" aria-label={t("about")}>
        <Icon name="info" />
      </button>
      <span class="about-text" role="tooltip">
        {children}
      </span>
    </span>
  );
}

/** Definition, source and query of a number. */
export function definition(text: string, promql?: string | null, source?: string | null): ComponentChildren {
  return (
    <>
      <span>{text}</span>
      {source && <span class="muted">{t("about.source", { source })}</span>}
      {promql && <code>{promql}</code>}
    </>
  );
}

export function Skeleton({ rows = 6 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label={t("loading")}>
      {Array.from({ length: rows }, (_, place) => (
        <span key={place} style={{ width: `${95 - ((place * 17) % 40)}%` }} />
      ))}
    </div>
  );
}

export function Failed({ error }: { error: ApiError }) {
  return (
    <div class="failed" role="alert">
      <Icon name="warning" />
      <div>
        <b>{t("failed.title")}</b>
        <p>{word(`failed.${error.message}`, error.message)}</p>
        {error.hint && <p class="muted">{error.hint}</p>}
        <p class="muted mono">{error.code}</p>
      </div>
    </div>
  );
}

export function Empty({
  title,
  why,
  command,
  children,
}: {
  title: string;
  why?: string;
  command?: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <b>{title}</b>
      {why && <p class="muted">{why}</p>}
      {command && <Command text={command} />}
      {children}
    </div>
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
      {of.error && (
        <p class="notice warn" role="status">
          <Icon name="warning" /> {t("stale.request", { time: duration((now.value - of.at) / 1000) })}{" "}
          {word(`failed.${of.error.message}`, of.error.message)}
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
