/** GPUs by class over time. */
import { useMemo } from "preact/hooks";
import { useApi } from "../api/client";
import type { ClassHistory } from "../api/shapes";
import { scope, span } from "../state/scope";
import { restricted } from "../state/session";
import { t } from "../words";
import { Chart } from "./chart";
import { CLASSES, colour } from "./classes";
import { number } from "./format";
import { className, useDark } from "./heatmap";
import { NoHistory, PartNotes } from "./partnote";
import { Panel, Shown } from "./pieces";
import { rangeText } from "./topbar";

export function Course({ namespace }: { namespace?: string }) {
  const wanted = namespace === undefined ? scope.value : [namespace];
  const shares = wanted.length > 0 || restricted.value; // of namespaces, and not whole GPUs
  const title = t(shares ? "overview.shares" : "overview.course");
  const note = t(shares ? "overview.shares_note" : "overview.course_note");
  const found = useApi<ClassHistory>("/api/v1/history/classes", { ...span.value, namespace: wanted });
  return (
    <Panel title={title} note={`${rangeText()} · ${note}`}>
      <Shown of={found} rows={5}>
        {(data) => <CourseOf data={data} title={title} figure={shares ? "chart.shares_by_class" : "chart.by_class"} />}
      </Shown>
    </Panel>
  );
}

function CourseOf({ data, title, figure }: { data: ClassHistory; title: string; figure: string }) {
  const dark = useDark();
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours and names follow theme and language
  const lines = useMemo(
    () =>
      CLASSES.flatMap((name) => {
        const column = data.columns.find((one) => one.use_class === name);
        return column ? [{ key: name, figure, name: className(name), colour: colour(name), values: column.gpus }] : [];
      }),
    [data, dark],
  );
  const nothing = data.source === "none" || lines.every((line) => line.values.every((value) => value === null));
  return (
    <>
      <PartNotes parts={data.parts} names={["history"]} />
      {nothing ? (
        <NoHistory parts={data.parts} />
      ) : (
        <Chart
          name="classes"
          step={data.step_seconds}
          times={data.times}
          lines={lines}
          stacked
          label={title}
          show={(value) => number(value, 1)}
          height={220}
        />
      )}
    </>
  );
}
