/** Keeps the console up to date: the analyzer's events, and a timer for what changes between two analyses. */
import { effect, signal } from "@preact/signals";
import { refresh } from "../state/preferences";
import { asked, locked } from "../state/session";
import { apiRoot } from "../state/url";
import { revision } from "./client";

export type Connection = "connecting" | "live" | "lost";
export const connection = signal<Connection>("connecting");

const SHORTEST = 1_000;
const LONGEST = 30_000; // ms between two attempts to connect

/** Follows the events until the page is closed; reconnects with exponential back-off. */
export function follow(): void {
  let pause = SHORTEST;
  const connect = (): void => {
    if (!asked.value || locked.value) {
      setTimeout(connect, asked.value ? SHORTEST : 50); // without the right to read there is nothing to follow
      return;
    }
    const source = new EventSource(`${apiRoot}api/v1/events`);
    source.onopen = () => {
      if (connection.value === "lost") revision.value += 1; // something may have changed meanwhile
      connection.value = "live";
      pause = SHORTEST;
    };
    let first = true;
    source.addEventListener("analysis", () => {
      if (!first) revision.value += 1;
      first = false;
    });
    source.onerror = () => {
      connection.value = "lost";
      source.close();
      setTimeout(connect, pause * (0.5 + Math.random() / 2));
      pause = Math.min(LONGEST, pause * 2);
    };
  };
  connect();
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
