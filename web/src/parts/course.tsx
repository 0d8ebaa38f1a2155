/** GPUs by class over time. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { ClassHistory } from "../api/shapes";
import { scope, span } from "../state/scope";
import { t } from "../words";
import { Chart } from "./chart";
import { CLASSES, colour } from "./classes";
import { number } from "./format";
import { className, useDark } from "./heatmap";
import { PartNotes } from "./partnote";
import { Empty, Panel, Shown } from "./pieces";
import { rangeText } from "./topbar";

export function Course({ query = {} }: { query?: Record<string, string> }) {
  const found = useApi<ClassHistory>("/api/v1/history/classes", { ...span.value, namespace: scope.value, ...query });
  return (
    <Panel title={t("overview.course")} note={`${rangeText()} · ${t("overview.course_note")}`}>
      <Shown of={found} rows={5}>
        {(data) => <CourseOf data={data} />}
      </Shown>
    </Panel>
  );
}

function CourseOf({ data }: { data: ClassHistory }) {
  const dark = useDark();
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours and names follow theme and language
  const lines = useMemo(
    () =>
      CLASSES.flatMap((name) => {
        const column = data.columns.find((one) => one.use_class === name);
        return column
          ? [{ key: name, figure: "chart.by_class", name: className(name), colour: colour(name), values: column.gpus }]
          : [];
      }),
    [data, dark],
  );
  const nothing = data.source === "none" || lines.every((line) => line.values.every((value) => value === null));
  return (
    <>
      <PartNotes parts={data.parts} names={["history"]} />
      {nothing ? (
        <Empty title={t("empty.history")} why={t("empty.history_why")} doctor />
      ) : (
        <Chart
          name="classes"
          step={data.step_seconds}
          times={data.times}
          lines={lines}
          stacked
          label={t("overview.course")}
          show={(value) => number(value, 1)}
          height={220}
        />
      )}
    </>
  );
}
