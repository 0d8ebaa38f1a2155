/** What happened, newest first. */
import type { TimelineEvent } from "../api/shapes";
import { t } from "../words";
import { Age, Tag } from "./pieces";
import { eventText, kindOf } from "./sentences";
import { Subject } from "./subject";

interface Props {
  readonly events: readonly TimelineEvent[];
  readonly gpu?: boolean; // false: all are about the same GPU
  readonly node?: boolean;
}

export function EventList({ events, gpu = true, node = true }: Props) {
  if (events.length === 0) return <div class="empty small">{t("empty.events")}</div>;
  return (
    <ul class="attention">
      {events.map((one) => (
        <li key={one.id}>
          <EventTag row={one} />
          <span class="what">
            {eventText(one)}{" "}
            <span class="about-what">
              <Subject row={one} gpu={gpu} node={node} />
            </span>
          </span>
          <span class="muted when">
            <Age at={one.at} ago />
          </span>
        </li>
      ))}
    </ul>
  );
}

export function EventTag({ row }: { row: TimelineEvent }) {
  return <Tag tone={toneOf(row)}>{row.kind === "gpu" ? kindOf(row) : t(`event.${row.kind}`)}</Tag>;
}

function toneOf(one: TimelineEvent): "good" | "warn" | "bad" | "plain" {
  if (one.kind === "xid") return "bad";
  if (one.kind === "health") return one.after === "ok" ? "good" : "bad";
  if (one.kind === "target") return one.after === "up" ? "good" : "bad";
  return "plain";
}
