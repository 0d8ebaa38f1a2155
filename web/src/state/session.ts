/** Who uses the console. The cookie is HttpOnly: this code never sees it. */
import { computed, signal } from "@preact/signals";
import { revision, send } from "../api/client";
import type { components } from "../api/types.gen";

/** What `GET /api/v1/session` answers. */
export type Session = components["schemas"]["Session"];

export const session = signal<Session | null>(null);
/** Whether it was asked who uses the console: pages wait for that, so that none asks for what it may not read. */
export const asked = signal(false);
/** Whether this user may see nothing before logging in. */
export const locked = computed(() => session.value !== null && session.value.role === null);

const RANK = { read: 0, operate: 1, admin: 2 } as const;
export type Role = keyof typeof RANK;

const role = computed<Role>(() => session.value?.role ?? "read");
/** Whether this user may do what needs a role. */
export const may = (wanted: Role): boolean => RANK[role.value] >= RANK[wanted];

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
  await send("DELETE", "/api/v1/session");
  await readSession();
  revision.value += 1;
}
