/** How a GPU, node, pod or namespace was used, how much memory it had, and what power it drew: three charts of one answer. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { SeriesHistory } from "../api/shapes";
import { span } from "../state/scope";
import { type Key, t } from "../words";
import { Chart } from "./chart";
import { ink } from "./classes";
import { Value } from "./figures";
import { bytes, duration, energy, number, percent, watts } from "./format";
import { useDark } from "./heatmap";
import { NoHistory, PartNotes } from "./partnote";
import { About, definition, Empty, Panel, Shown } from "./pieces";
import { rangeText } from "./topbar";

type Column = SeriesHistory["columns"][number];
type Quantity = Column["quantity"];

interface Props {
  readonly query: Record<string, string | null | readonly string[]>;
  readonly memory?: number | null; // the axis of memory reaches at least to here
}

const CHARTS: readonly {
  readonly title: Key;
  readonly name: string;
  readonly quantities: readonly Quantity[];
}[] = [
  { title: "gpu.use", name: "use", quantities: ["use", "use_max", "cores_allocated"] },
  { title: "gpu.memory", name: "memory", quantities: ["memory_used", "memory_allocated"] },
  { title: "gpu.power", name: "power", quantities: ["power", "power_max"] },
];
const WANTED: readonly Quantity[] = [...CHARTS.flatMap((one) => one.quantities), "energy"];

/** To be put into a grid of twelve columns. */
export function Trends({ query, memory = 0 }: Props) {
  const found = useApi<SeriesHistory>("/api/v1/history/series", {
    ...span.value,
    points: 240,
    quantity: WANTED,
    ...query,
  });
  const ofPods = query.pod || query.namespace || query.owner;
  const charts = CHARTS.map((one) => (ofPods && one.name === "use" ? { ...one, title: "col.gpu_time" as const } : one));
  return (
    <>
      {charts.map(({ title, name, quantities }) => (
        <div key={title} class="third">
          <Panel
            title={t(title)}
            note={name === "power" ? <PowerNote data={found.data} /> : rangeText()}
            actions={found.data && <Origin data={found.data} quantities={quantities} />}
          >
            <Shown of={found} rows={5}>
              {(data) => (
                <TrendOf
                  data={data}
                  name={name}
                  quantities={quantities}
                  title={t(title)}
                  wholeGpus={!query.pod && !query.mig}
                  top={title === "gpu.memory" ? memory : 0}
                />
              )}
            </Shown>
          </Panel>
        </div>
      ))}
    </>
  );
}

/** The energy of all steps together. */
function PowerNote({ data }: { data: SeriesHistory | null | undefined }) {
  const steps = data?.columns.find((one) => one.quantity === "energy")?.values ?? [];
  const known = steps.filter((value) => value !== null);
  if (known.length === 0) return <>{rangeText()}</>;
  const all = known.reduce((sum, value) => sum + value, 0);
  return (
    <>
      {rangeText()} ·{" "}
      <Value figure="chart.energy_sum" span={rangeText()}>
        {energy(all)}
      </Value>
    </>
  );
}

/** Where the points come from, and their PromQL if it is Prometheus. */
function Origin({ data, quantities }: { data: SeriesHistory; quantities: readonly Quantity[] }) {
  const text = t("chart.source", { source: t(`chart_source.${data.source}`), step: duration(data.step_seconds) });
  return (
    <About>
      {definition(text, {
        promql: data.columns
          .filter((one) => quantities.includes(one.quantity))
          .map((one) => one.promql)
          .filter(Boolean)
          .join("\n"),
      })}
    </About>
  );
}

/** The colour of each line but the first; dashed are limits and extremes. */
const SECOND: Partial<Record<Quantity, { readonly colour: "ink-3" | "warn"; readonly dashed: boolean }>> = {
  use_max: { colour: "ink-3", dashed: true },
  power_max: { colour: "ink-3", dashed: true },
  cores_allocated: { colour: "warn", dashed: true },
  memory_allocated: { colour: "warn", dashed: true },
};

function TrendOf({
  data,
  name,
  quantities,
  title,
  wholeGpus,
  top,
}: {
  data: SeriesHistory;
  name: string;
  quantities: readonly Quantity[];
  title: string;
  wholeGpus: boolean;
  top: number | null;
}) {
  const dark = useDark();
  const columns = data.columns.filter((one) => quantities.includes(one.quantity) && measured(one));
  // biome-ignore lint/correctness/useExhaustiveDependencies: the columns belong to the answer
  const lines = useMemo(
    () =>
      columns.map((one) => ({
        key: one.quantity,
        figure: `chart.${one.quantity}`,
        name: t(`quantity.${one.quantity}`),
        colour: ink(SECOND[one.quantity]?.colour ?? "accent"),
        values: one.values,
        dashed: SECOND[one.quantity]?.dashed ?? false,
      })),
    [data, dark],
  );
  const unit = columns[0]?.unit ?? "ratio";
  if (data.source === "none" || lines.length === 0) {
    return (
      <>
        <PartNotes parts={data.parts} names={["history", "prometheus"]} />
        {name === "power" && !wholeGpus && data.source !== "none" ? (
          <Empty title={t("empty.measured")} why={t("empty.power_own")} />
        ) : (
          <NoHistory parts={data.parts} />
        )}
      </>
    );
  }
  return (
    <Chart
      name={name}
      step={data.step_seconds}
      times={data.times}
      lines={lines}
      label={title}
      show={(value) => SHOW[unit](value)}
      top={top || (unit === "ratio" ? 1 : 0)}
      binary={unit === "bytes"}
    />
  );
}

const measured = (one: Column): boolean => one.values.some((value) => value !== null);

const SHOW: Record<Column["unit"], (value: number | null) => string> = {
  ratio: percent,
  bytes,
  score: (value) => number(value, 1),
  watts,
  joules: energy,
};
