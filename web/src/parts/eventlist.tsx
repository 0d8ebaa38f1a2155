/** What happened, newest first. */
import type { TimelineEvent } from "../api/shapes";
import { Subject } from "../pages/overview";
import { t, word } from "../words";
import { duration } from "./format";
import { className } from "./heatmap";
import { Age, Tag } from "./pieces";

export function EventList({ events }: { events: readonly TimelineEvent[] }) {
  if (events.length === 0) return <div class="empty small">{t("empty.events")}</div>;
  return (
    <ul class="attention">
      {events.map((one) => (
        <li key={one.id}>
          <span class="muted when">
            <Age at={one.at} ago />
          </span>
          <Tag tone={toneOf(one)}>{t(`event.${one.kind}`)}</Tag>
          <span class="what">
            <Subject row={one} /> <span>{sentence(one)}</span>
          </span>
        </li>
      ))}
    </ul>
  );
}

function toneOf(one: TimelineEvent): "good" | "warn" | "bad" | "plain" {
  if (one.kind === "xid") return "bad";
  if (one.kind === "health") return one.after === "ok" ? "good" : "bad";
  if (one.kind === "target") return one.after === "up" ? "good" : "bad";
  return "plain";
}

export function sentence(one: TimelineEvent): string {
  const value = (text: string | null): string =>
    text === null ? t("value.none") : one.kind === "verdict" ? className(text) : text;
  if (one.kind === "xid") return `XID ${one.number ?? ""} ${one.message ?? ""}`;
  if (one.kind === "scheduling")
    return `${word(`outcome.${one.after}`, one.after ?? "")} ${one.number === null ? "" : t("event.waited", { time: duration(one.number) })} ${one.message ?? one.code ?? ""}`;
  if (one.before !== null || one.after !== null)
    return `${value(one.before)} → ${value(one.after)} ${one.message ?? ""}`;
  return one.message ?? one.code ?? "";
}
