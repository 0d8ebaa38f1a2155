/** Numbers with the code of their definition, so that a reader sees what is counted, and a program can read the page. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { covers, defined, type Span } from "../state/definitions";
import { type Key, pieces, t } from "../words";

// ── tips ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const tipped = signal<{ readonly text: string; readonly box: DOMRect } | null>(null);

/** What makes an element show a text when it is pointed at or has the focus. */
export function tip(text: string | undefined) {
  if (!text) return {};
  const show = (event: Event): void => {
    tipped.value = { text, box: (event.currentTarget as Element).getBoundingClientRect() };
  };
  const hide = (): void => {
    tipped.value = null;
  };
  return {
    "aria-describedby": "tip",
    "data-tip": text,
    onMouseEnter: show,
    onFocus: show,
    onMouseLeave: hide,
    onBlur: hide,
    onKeyDown: (event: KeyboardEvent): void => {
      if (event.key === "Escape") hide();
    },
  };
}

const WIDTH = 340; // px, at most

/** The one text that is shown, above everything: tables cut off what is within them. */
export function TipLayer() {
  useEffect(() => {
    const hide = (): void => {
      tipped.value = null;
    };
    addEventListener("scroll", hide, { capture: true, passive: true });
    return () => removeEventListener("scroll", hide, { capture: true });
  }, []);
  const at = tipped.value;
  const left = at ? Math.max(8, Math.min(at.box.left, innerWidth - WIDTH - 8)) : 0;
  return (
    <div
      id="tip"
      role="tooltip"
      class="tip-layer"
      hidden={!at}
      style={at ? { left: `${left}px`, top: `${at.box.bottom + 6}px` } : {}}
    >
      {at?.text}
    </div>
  );
}

// ── single numbers ────────────────────────────────────────────────────────────────────────────────────────────────

interface ValueProps {
  readonly figure: string; // code of the definition
  readonly of?: string | undefined; // key: of what it is the number
  readonly span?: Span; // what it covers, if not the window of the analysis
  readonly within?: boolean; // a link or button has the focus already, and says what the number is
  readonly children: ComponentChildren;
}

/** A number within a text. */
export function Value({ figure, of, span, within = false, children }: ValueProps) {
  if (within) {
    return (
      <span data-figure={figure} data-key={of}>
        {children}
      </span>
    );
  }
  return (
    <span data-figure={figure} data-key={of} tabIndex={0} class="value" {...tip(explained(figure, span))}>
      {children}
    </span>
  );
}

/** A definition, with the time that is covered. */
export function explained(figure: string | undefined, span?: Span): string | undefined {
  const text = defined(figure);
  if (!text) return undefined;
  const time = covers(figure, span);
  return time ? `${text}\n${t("covers.label", { time })}` : text;
}

type Numbers = Readonly<Record<string, readonly [figure: string, text: string | number, key?: string]>>;

/** A text in which every number has its definition; other holes are filled by `values`. */
export function Said({
  text,
  numbers,
  values = {},
  span,
  within = false,
}: {
  text: Key;
  numbers: Numbers;
  values?: Record<string, string | number>;
  span?: Span;
  within?: boolean;
}) {
  const plain = { ...values, ...Object.fromEntries(Object.entries(numbers).map(([name, [, shown]]) => [name, shown])) };
  return (
    <>
      {pieces(text, plain).map(([piece, name], place) => {
        const found = name === null ? undefined : numbers[name];
        return found ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of one text keep their places
          <Value key={place} figure={found[0]} of={found[2]} span={span} within={within}>
            {piece}
          </Value>
        ) : (
          piece
        );
      })}
    </>
  );
}

// ── tables that are written by hand ───────────────────────────────────────────────────────────────────────────────

interface HeadProps {
  readonly title: Key;
  readonly figure: string;
  readonly about?: Key; // what else there is to say
  readonly span?: Span;
  readonly class?: string;
}

/** The heading of a column of numbers. */
export function NumHead({ title, figure, about, span, class: more = "" }: HeadProps) {
  const text = [explained(figure, span), about && t(about)].filter(Boolean).join("\n");
  return (
    <th scope="col" class={`num ${more}`.trim()} data-figure={figure}>
      <span class="heading" tabIndex={0} {...tip(text)}>
        {t(title)}
      </span>
      <Covers figure={figure} span={span} />
    </th>
  );
}

/** The time that a figure covers, below its title. */
export function Covers({ figure, span }: { figure: string | undefined; span?: Span }) {
  const text = covers(figure, span);
  return text ? <span class="covers">{text}</span> : null;
}

interface CellProps {
  readonly figure: string;
  readonly of?: string | undefined; // key, if it is another than that of the row
  readonly title?: string | undefined;
  readonly class?: string;
  readonly children: ComponentChildren;
}

/** A number of a column. */
export function Num({ figure, of, title, class: more = "", children }: CellProps) {
  return (
    <td class={`num ${more}`.trim()} data-figure={figure} data-key={of} title={title}>
      {children}
    </td>
  );
}
