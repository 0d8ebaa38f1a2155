/** Keeps the console up to date: the analyzer's events, and a timer for what changes between two analyses. */
import { effect, signal, untracked } from "@preact/signals";
import { refresh } from "../state/preferences";
import { asked, closed } from "../state/session";
import { apiRoot } from "../state/url";
import { paused, revision } from "./client";

export type Connection = "connecting" | "live" | "lost";
export const connection = signal<Connection>("connecting");

const SHORTEST = 1_000;
const LONGEST = 30_000; // ms between two attempts to connect

/** Follows the events while somebody may read them; reconnects with exponential back-off. */
export function follow(): void {
  effect(() => (asked.value && !closed.value && !paused.value ? following() : undefined));
  effect(() => {
    if (refresh.value === 0) return;
    const timer = setInterval(() => {
      if (!document.hidden) revision.value += 1;
    }, refresh.value * 1000);
    return () => clearInterval(timer);
  });
  addEventListener("visibilitychange", () => {
    if (!document.hidden && refresh.value) revision.value += 1;
  });
}

/** Connects, again and again; returns what ends it. */
function following(): () => void {
  let pause = SHORTEST;
  let source: EventSource;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const connect = (): void => {
    source = new EventSource(`${apiRoot}api/v1/events`);
    source.onopen = () => {
      if (connection.value === "lost") read(); // something may have changed meanwhile
      connection.value = "live";
      pause = SHORTEST;
    };
    let first = true;
    source.addEventListener("analysis", () => {
      if (!first) read();
      first = false;
    });
    source.onerror = () => {
      connection.value = "lost";
      source.close();
      timer = setTimeout(connect, pause * (0.5 + Math.random() / 2));
      pause = Math.min(LONGEST, pause * 2);
    };
  };
  untracked(connect);
  return () => {
    clearTimeout(timer);
    source.close();
  };
}

const read = (): void => {
  revision.value += 1;
};
