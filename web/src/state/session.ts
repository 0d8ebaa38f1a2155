/** Who uses the console. The cookie is HttpOnly: this code never sees it. */
import { computed, signal } from "@preact/signals";
import { revision, send } from "../api/client";
import type { Session } from "../api/shapes";

export const session = signal<Session | null>(null);
/** Whether it is known who uses the console, or cannot be known: before that, nothing is asked for. */
export const asked = signal(false);

const RANK = { read: 0, operate: 1, admin: 2 } as const;
export type Role = keyof typeof RANK;

const rank = computed(() => (session.value?.role ? RANK[session.value.role] : -1));
/** Whether this user may do what needs a role. */
export const may = (wanted: Role): boolean => rank.value >= RANK[wanted];
/** Whether nothing is shown until somebody logs in. */
export const closed = computed(() => session.value !== null && session.value.role === null);

export async function readSession(): Promise<void> {
  try {
    session.value = await send<Session>("GET", "/api/v1/session");
  } finally {
    asked.value = true;
  }
}

/** Logs in with a token, or with a user's name and password; raises ApiError if they are wrong. */
export async function logIn(secret: { token: string } | { user: string; password: string }): Promise<void> {
  session.value = await send<Session>("POST", "/api/v1/session", secret);
  revision.value += 1;
}

export async function logOut(): Promise<void> {
  session.value = await send<Session>("DELETE", "/api/v1/session");
  revision.value += 1;
}
