/** Lines and stacked areas over time, drawn by uPlot. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { language } from "../state/preferences";
import { t } from "../words";
import { ink } from "./classes";
import { moment } from "./format";
import { useDark } from "./heatmap";

export interface Line {
  readonly name: string;
  readonly colour: string;
  readonly values: readonly (number | null)[];
  readonly dashed?: boolean;
}

interface Props {
  readonly times: readonly number[]; // Unix seconds
  readonly lines: readonly Line[];
  readonly label: string;
  readonly show: (value: number | null) => string;
  readonly stacked?: boolean;
  readonly top?: number; // the axis reaches at least to here
  readonly height?: number;
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const dark = useDark();
  const { times, lines, stacked, height = 180 } = props;
  // biome-ignore lint/correctness/useExhaustiveDependencies: functions and labels belong to the language
  useEffect(() => {
    const root = box.current;
    if (!root || times.length === 0) return;
    const plot = new uPlot(options(props, root.clientWidth, height), data(times, lines, stacked ?? false), root);
    const observer = new ResizeObserver(() => plot.setSize({ width: root.clientWidth, height }));
    observer.observe(root);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [times, lines, dark, height, stacked, language.value]);
  if (times.length === 0) return <div class="empty small">{t("chart.nothing")}</div>;
  return (
    <figure class="chart">
      <figcaption class="sr">{summary(props)}</figcaption>
      <div ref={box} aria-hidden="true" style={{ minHeight: `${height}px` }} />
    </figure>
  );
}

/** What the picture shows, in words: the last value of each line. */
function summary({ label, lines, show, times }: Props): string {
  const last = lines.map((line) => `${line.name}: ${show(line.values.findLast((value) => value !== null) ?? null)}`);
  return `${label}, ${moment(times[0])} – ${moment(times.at(-1))}. ${last.join("; ")}`;
}

function data(times: readonly number[], lines: readonly Line[], stacked: boolean): uPlot.AlignedData {
  if (!stacked) return [[...times], ...lines.map((line) => [...line.values])] as uPlot.AlignedData;
  const sums = times.map(() => 0);
  const stacks = lines.map((line) => line.values.map((value, index) => (sums[index] = sums[index]! + (value ?? 0))));
  return [[...times], ...stacks] as uPlot.AlignedData;
}

function options({ lines, show, stacked, top }: Props, width: number, height: number): uPlot.Options {
  const axis = {
    stroke: ink("ink-3"),
    grid: { stroke: ink("line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui",
  };
  return {
    width: Math.max(120, width),
    height,
    padding: [8, 8, 0, 0],
    legend: { show: true, live: true },
    cursor: { points: { size: 6 } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(top ?? 0, (high ?? 0) * 1.04) || 1] } },
    axes: [
      { ...axis, values: (_, splits) => clock(splits) },
      { ...axis, size: 62, values: (_, splits) => splits.map((one) => show(one)) },
    ],
    series: [
      { label: t("chart.time"), value: (_, at) => (at === null ? "–" : moment(at)) },
      ...lines.map((line, place) => ({
        label: line.name,
        stroke: line.colour,
        width: stacked ? 1 : 1.6,
        ...(stacked ? { fill: line.colour } : {}),
        ...(line.dashed ? { dash: [5, 4] } : {}),
        points: { show: false },
        spanGaps: false,
        value: (_: uPlot, __: number | null, ___: number, index: number | null) =>
          show(index === null ? null : (lines[place]!.values[index] ?? null)),
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
