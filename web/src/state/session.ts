/** Who uses the console. The cookie is HttpOnly: this code never sees it. */
import { computed, signal } from "@preact/signals";
import { revision, send } from "../api/client";

/** What `GET /api/v1/session` answers. */
export interface Session {
  readonly user: string | null;
  readonly role: Role;
  readonly namespaces: readonly string[] | null; // null: all
  readonly way: "cookie" | "token" | "password" | "proxy" | "none" | "loopback";
  readonly can_log_in: boolean;
  readonly ways: readonly ("token" | "password")[];
  readonly expires: string | null;
}

export const session = signal<Session | null>(null);

const RANK = { read: 0, operate: 1, admin: 2 } as const;
export type Role = keyof typeof RANK;

const role = computed<Role>(() => session.value?.role ?? "read");
/** Whether this user may do what needs a role. */
export const may = (wanted: Role): boolean => RANK[role.value] >= RANK[wanted];

export async function readSession(): Promise<void> {
  session.value = await send<Session>("GET", "/api/v1/session");
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
