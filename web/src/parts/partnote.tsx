/** Says which part of an answer is old or missing, and why. The other panels are not affected. */
import type { Part } from "../api/shapes";
import { now } from "../state/clock";
import { language } from "../state/preferences";
import { t, word } from "../words";
import { ageOf, duration } from "./format";
import { Icon } from "./icon";
import { Empty, Prose, ToDoctor } from "./pieces";

type Name = Part["name"];

export function part(parts: readonly Part[], name: Name): Part | undefined {
  return parts.find((one) => one.name === name);
}

/** Whether what a part knows can be shown as current. */
export function current(parts: readonly Part[], name: Name): boolean {
  return part(parts, name)?.state === "ok";
}

/** Whether anything of a part is known: its values now, or the last good ones. */
export function known(parts: readonly Part[], name: Name): boolean {
  return current(parts, name) || part(parts, name)?.state === "stale";
}

/** Notes for the named parts that are not all right. */
export function PartNotes({ parts, names }: { parts: readonly Part[]; names: readonly Name[] }) {
  const bad = names
    .map((name) => part(parts, name))
    .filter((one): one is Part => one !== undefined && one.state !== "ok");
  return (
    <>
      {bad.map((one) => (
        <p key={one.name} class={one.state === "absent" ? "notice" : "notice warn"} role="status">
          <Icon name={one.state === "absent" ? "info" : "warning"} />
          <span>
            <b>{t(`part.${one.name}`)}</b>
            {t("join")}
            {t(`part_state.${one.state}`)}
            {one.state === "stale" &&
              one.at !== null &&
              t("bracket", { text: t("ago", { time: duration(ageOf(one.at, now.value)) }) })}
            {t("stop")}
            {language.value === "en" && one.state !== "absent" && one.message && `${one.message}. `}
            <Prose text={hintOf(one)} /> {one.state !== "absent" && <ToDoctor />}
          </span>
        </p>
      ))}
    </>
  );
}

/** Why a chart has no line: no results are stored, or none of the range has the value. */
export function NoHistory({ parts }: { parts: readonly Part[] }) {
  if (part(parts, "history")?.state === "absent") {
    return <Empty title={t("empty.history")} why={t("empty.history_why")} doctor />;
  }
  return <Empty title={t("empty.measured")} why={t("empty.measured_why")} doctor />;
}

/** In the place of a list that only the cluster exporter has: without it, an empty list would say that there is nothing. */
export function ClusterNeeded() {
  return <div class="empty small">{t("part.cluster_needed")}</div>;
}

/** What to do: in English the API says it best. */
function hintOf(one: Part): string {
  const own = word(`part_hint.${one.name}.${one.state}`, "");
  return language.value === "en" ? (one.hint ?? own) : own;
}
