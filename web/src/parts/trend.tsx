/** One chart of the history, for any object. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { SeriesHistory } from "../api/shapes";
import { span } from "../state/scope";
import { t } from "../words";
import { Chart } from "./chart";
import { ink } from "./classes";
import { bytes, duration, number, percent, watts } from "./format";
import { useDark } from "./heatmap";
import { PartNotes } from "./partnote";
import { About, definition, Empty, Panel, Shown } from "./pieces";
import { rangeText } from "./topbar";

type Quantity = SeriesHistory["columns"][number]["quantity"];

interface Props {
  readonly title: string;
  readonly query: Record<string, string | null | readonly string[]>;
  readonly quantities: readonly Quantity[];
  readonly top?: number;
}

export function Trend({ title, query, quantities, top = 0 }: Props) {
  const found = useApi<SeriesHistory>("/api/v1/history/series", {
    ...span.value,
    points: 240,
    quantity: quantities,
    ...query,
  });
  return (
    <Panel title={title} note={rangeText()} actions={found.data && <Origin data={found.data} />}>
      <Shown of={found} rows={5}>
        {(data) => <TrendOf data={data} quantities={quantities} title={title} top={top} />}
      </Shown>
    </Panel>
  );
}

/** Where the points come from, and their PromQL if it is Prometheus. */
function Origin({ data }: { data: SeriesHistory }) {
  const text = t("chart.source", { source: t(`chart_source.${data.source}`), step: duration(data.step_seconds) });
  return (
    <About>
      {definition(text, {
        promql: data.columns
          .map((one) => one.promql)
          .filter(Boolean)
          .join("\n"),
      })}
    </About>
  );
}

const DASHED = new Set<Quantity>(["use_max", "memory_max"]);

function TrendOf({
  data,
  quantities,
  title,
  top,
}: {
  data: SeriesHistory;
  quantities: readonly Quantity[];
  title: string;
  top: number;
}) {
  const dark = useDark();
  const columns = data.columns.filter((one) => quantities.includes(one.quantity));
  // biome-ignore lint/correctness/useExhaustiveDependencies: the columns belong to the answer
  const lines = useMemo(
    () =>
      columns.map((one) => ({
        name: t(`quantity.${one.quantity}`),
        colour: DASHED.has(one.quantity) ? ink("ink-3") : ink("accent"),
        values: one.values,
        dashed: DASHED.has(one.quantity),
      })),
    [data, dark],
  );
  const unit = columns[0]?.unit ?? "ratio";
  const show = (value: number | null): string =>
    ({ ratio: percent(value), bytes: bytes(value), score: number(value, 1), watts: watts(value) })[unit];
  if (data.source === "none" || lines.every((line) => line.values.every((value) => value === null))) {
    return (
      <>
        <PartNotes parts={data.parts} names={["history", "prometheus"]} />
        <Empty title={t("empty.history")} why={t("empty.history_why")} />
      </>
    );
  }
  return (
    <Chart
      times={data.times}
      lines={lines}
      label={title}
      show={show}
      top={top || (unit === "ratio" ? 1 : 0)}
      binary={unit === "bytes"}
    />
  );
}
