/** Columns that several tables have: each is defined once, and a table says how to read its value from a row. */
import { pathOf } from "../state/url";
import { t } from "../words";
import { bytes, number, percent } from "./format";
import { className } from "./heatmap";
import { realOwner } from "./owner";
import { Age, ClassBadge, Link } from "./pieces";
import { PROMQL } from "./promql";
import type { Column } from "./table";

type Read<R, V> = (row: R) => V | null | undefined;
type More<R> = Partial<Omit<Column<R>, "numeric" | "figure" | "names">>;
const NOTHING = <span class="muted">–</span>;

export const classColumn = <R,>(of: Read<R, string>, promql: string, more: More<R> = {}): Column<R> => ({
  key: "use_class",
  title: "col.class",
  about: "about.class",
  part: "analysis",
  promql,
  value: of,
  show: (row) => <ClassBadge name={of(row)} />,
  filter: className,
  ...more,
});

export const idleForColumn = <R,>(figure: string, of: Read<R, string | number>, more: More<R> = {}): Column<R> => ({
  key: "idle_since",
  figure,
  title: "col.idle_for",
  about: "about.idle_for",
  part: "analysis",
  value: of,
  show: (row) => (of(row) ? <Age at={of(row)} /> : NOTHING),
  numeric: true,
  oldestFirst: true,
  ...more,
});

export const nodeColumn = <R,>(of: Read<R, string>): Column<R> => ({
  key: "node",
  title: "col.node",
  value: of,
  show: (row) => {
    const name = of(row);
    return name ? <Link to={pathOf("nodes", name)}>{name}</Link> : NOTHING;
  },
  long: true,
  filter: (one) => one || t("value.none"),
});

export const ownerColumn = <R,>(of: Read<R, string>, more: More<R> = {}): Column<R> => ({
  key: "owner",
  title: "col.owner",
  value: (row) => realOwner(of(row) ?? null),
  filter: (one) => one || t("value.none"),
  ...more,
});

export const namespaceColumn = <R,>(of: Read<R, string>): Column<R> => ({
  key: "namespace",
  title: "col.namespace",
  value: of,
  filter: (one) => one || t("value.none"),
  optional: true,
});

export const requestColumn = <R,>(figure: string, of: Read<R, number>): Column<R> => ({
  key: "memory_allocated",
  figure,
  title: "col.request",
  about: "about.request",
  part: "cluster",
  promql: PROMQL.tenant_request,
  value: of,
  show: (row) => bytes(of(row)),
  numeric: true,
});

export const maxColumn = <R,>(
  figure: string,
  of: Read<R, number>,
  more: More<R> & { digits?: number } = {},
): Column<R> => {
  const { digits, ...rest } = more;
  return {
    key: "use_max",
    figure,
    title: "col.max",
    about: "about.max",
    part: "analysis",
    value: of,
    show: (row) => percent(of(row), digits),
    numeric: true,
    ...rest,
  };
};

export const p95Column = <R,>(figure: string, of: Read<R, number>): Column<R> => ({
  key: "use_p95",
  figure,
  title: "col.p95",
  about: "about.p95",
  part: "analysis",
  value: of,
  show: (row) => percent(of(row)),
  numeric: true,
  optional: true,
});

export const confidenceColumn = <R,>(figure: string, of: Read<R, number>): Column<R> => ({
  key: "confidence",
  figure,
  title: "col.confidence",
  about: "about.confidence",
  part: "analysis",
  promql: PROMQL.gpu_confidence,
  value: of,
  show: (row) => percent(of(row)),
  numeric: true,
  optional: true,
});

export const scoreColumn = <R,>(figure: string, of: Read<R, number>, more: More<R> = {}): Column<R> => ({
  key: "score",
  figure,
  title: "col.score",
  about: "about.score",
  value: of,
  show: (row) => number(of(row), 1),
  numeric: true,
  ...more,
});
