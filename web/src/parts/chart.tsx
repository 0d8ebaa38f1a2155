/** Lines and stacked areas over time, drawn by uPlot, with a legend that shows the values under the pointer. */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { now } from "../state/clock";
import { language } from "../state/preferences";
import { t } from "../words";
import { ink } from "./classes";
import { explained, tip } from "./figures";
import { moment, stretch } from "./format";
import { useDark } from "./heatmap";

export interface Line {
  readonly key: string;
  readonly figure: string; // code of the definition of its values
  readonly name: string;
  readonly colour: string;
  readonly values: readonly (number | null)[];
  readonly dashed?: boolean;
}

interface Props {
  readonly name: string; // for programs that read the page
  readonly step: number; // seconds that a point covers, from its time on
  readonly times: readonly number[]; // Unix seconds
  readonly lines: readonly Line[];
  readonly label: string;
  readonly show: (value: number | null) => string;
  readonly stacked?: boolean;
  readonly top?: number; // the axis reaches at least to here
  readonly height?: number;
  readonly binary?: boolean; // the axis is divided by powers of two
}

export function Chart(props: Props) {
  const { times, lines, stacked = false, height = 190 } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const dark = useDark();
  const look = JSON.stringify([dark, height, stacked, props.top, language.value, lines.map((line) => line.name)]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `look` stands for everything that makes another picture
  useEffect(() => {
    const root = box.current;
    if (!root || times.length === 0) return;
    const made = new uPlot(options(props, root.clientWidth, height, setAt), data(times, lines, stacked), root);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(120, root.clientWidth), height }));
    observer.observe(root);
    return () => {
      plot.current = null;
      observer.disconnect();
      made.destroy();
    };
  }, [look, times.length === 0]);
  useEffect(() => plot.current?.setData(data(times, lines, stacked)), [times, lines, stacked]);
  if (times.length === 0) return <div class="empty small">{t("chart.nothing")}</div>;
  return (
    <figure
      class="chart"
      data-chart={props.name}
      data-times={JSON.stringify(times)}
      data-step={props.step}
      data-stacked={stacked ? "" : undefined}
    >
      <figcaption class="sr">{summary(props)}</figcaption>
      <div ref={box} aria-hidden="true" style={{ minHeight: `${height}px` }} />
      <ChartLegend {...props} at={at} />
    </figure>
  );
}

/** The values under the pointer; without one, the last values. */
export function ChartLegend({ times, lines, show, at, step }: Props & { at: number | null }) {
  const shown = at ?? lastMeasured(times, lines);
  const time = shown === null ? null : times[shown]!;
  const covered = time === null ? "" : stretch(time, time + step, now.value / 1000);
  return (
    <div class="chart-legend">
      <span class="muted">{at === null ? t("chart.latest", { time: covered }) : covered}</span>
      {lines.map((line) => (
        <span
          key={line.key}
          class="value"
          tabIndex={0}
          data-series={line.key}
          data-figure={line.figure}
          data-values={JSON.stringify(line.values)}
          data-at={time}
          {...tip(explained(line.figure, covered))}
        >
          <i class={line.dashed ? "line dashed" : "line"} style={{ background: line.colour }} />
          {line.name} <b>{show(shown === null ? null : (line.values[shown] ?? null))}</b>
        </span>
      ))}
    </div>
  );
}

/** The last place at which anything was measured. */
export function lastMeasured(times: readonly number[], lines: readonly Pick<Line, "values">[]): number | null {
  for (let place = times.length - 1; place >= 0; place -= 1) {
    if (lines.some((line) => (line.values[place] ?? null) !== null)) return place;
  }
  return null;
}

/** What the picture shows, in words: its time, and the values of the last step at which anything was measured. */
export function summary({ label, lines, show, times, step }: Omit<Props, "name">): string {
  const last = lastMeasured(times, lines);
  const until = Math.min((times.at(-1) ?? 0) + step, now.value / 1000);
  const whole = t("chart.span", { label, begin: moment(times[0]), end: moment(until) });
  if (last === null) return whole;
  const values = lines.map((line) => `${line.name}${t("join")}${show(line.values[last] ?? null)}`);
  const covered = stretch(times[last]!, times[last]! + step, now.value / 1000);
  return `${whole}${t("chart.latest", { time: covered })}${t("join")}${values.join(t("comma"))}`;
}

function data(times: readonly number[], lines: readonly Line[], stacked: boolean): uPlot.AlignedData {
  const values = lines.map((line) => line.values);
  return [[...times], ...(stacked ? stack(values) : values.map((one) => [...one]))] as uPlot.AlignedData;
}

/** Each column on top of those before it. Where no column has a value there is a gap, not 0. */
export function stack(columns: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const sums: (number | null)[] = (columns[0] ?? []).map((_, place) =>
    columns.every((column) => (column[place] ?? null) === null) ? null : 0,
  );
  return columns.map((column) =>
    sums.map((sum, place) => {
      if (sum === null) return null;
      sums[place] = sum + (column[place] ?? 0);
      return sums[place];
    }),
  );
}

/** Places of values without a neighbour: no line leads to them, so they are drawn as points. */
export function lone(values: ArrayLike<number | null | undefined>): number[] {
  const has = (place: number): boolean => (values[place] ?? null) !== null;
  return Array.from(values, (_, place) => place).filter((place) => has(place) && !has(place - 1) && !has(place + 1));
}

const POWERS = Array.from({ length: 50 }, (_, exponent) => 2 ** exponent);

function options(props: Props, width: number, height: number, point: (at: number | null) => void): uPlot.Options {
  const { lines, show, stacked, top, binary } = props;
  const axis = { stroke: ink("ink-3"), ticks: { show: false }, font: "11px system-ui" };
  return {
    width: Math.max(120, width),
    height,
    padding: [10, 22, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false },
    hooks: { setCursor: [(made) => point(made.cursor.idx ?? null)] },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(top ?? 0, (high ?? 0) * 1.04) || 1] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 28, values: (_, splits) => clock(splits) },
      {
        ...axis,
        grid: { stroke: ink("line"), width: 1 },
        size: 62,
        values: (_, splits) => splits.map((one) => show(one)),
        ...(binary ? { incrs: POWERS } : {}),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: line.colour,
        width: stacked ? 1 : 1.6,
        ...(stacked ? { fill: line.colour } : {}),
        ...(line.dashed ? { dash: [5, 4] } : {}),
        points: { show: false, size: 6, fill: line.colour, filter: (made: uPlot, of: number) => lone(made.data[of]!) },
        spanGaps: false,
      })),
    ],
    ...(stacked
      ? { bands: lines.slice(1).map((_, place) => ({ series: [place + 2, place + 1] as [number, number] })) }
      : {}),
  };
}

function clock(splits: readonly number[]): string[] {
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const long = (splits.at(-1) ?? 0) - (splits[0] ?? 0) > 2 * 86_400;
  const format = new Intl.DateTimeFormat(
    locale,
    long ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" },
  );
  return splits.map((one) => format.format(one * 1000));
}
