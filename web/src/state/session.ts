/** Who uses the console. The cookie is HttpOnly: this code never sees it. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { paused, refused, revision, send } from "../api/client";
import type { Session } from "../api/shapes";

export const session = signal<Session | null>(null);
/** Whether a session ended without a log-out. The page stays as it is until somebody logs in: it may hold typed text. */
export const ended = signal(false);
/** Whether it is known who uses the console, or cannot be known: before that, nothing is asked for. */
export const asked = signal(false);

const RANK = { read: 0, operate: 1, admin: 2 } as const;
export type Role = keyof typeof RANK;

const rank = computed(() => (session.value?.role ? RANK[session.value.role] : -1));
/** Whether this user may do what needs a role. */
export const may = (wanted: Role): boolean => rank.value >= RANK[wanted];
/** Whether this user sees only some namespaces: what concerns all of them is refused. */
export const restricted = computed(() => (session.value?.namespaces ?? null) !== null);
/** Whether nothing is shown until somebody logs in. */
export const closed = computed(() => session.value !== null && session.value.role === null);

export async function readSession(): Promise<void> {
  try {
    const found = await send<Session>("GET", "/api/v1/session");
    if (found.user === null && (ended.value || hasExpiry(session.value))) suspend(found);
    else enter(found);
  } finally {
    asked.value = true;
  }
}

const hasExpiry = (one: Session | null): boolean => one !== null && one.user !== null && one.expires !== null;

/** Keeps what this page offers; what needs the session is refused by the analyzer, and asks for a log-in then. */
function suspend(found: Session): void {
  const before = session.value;
  paused.value = found.role === null;
  session.value = { ...found, role: before?.role ?? null, namespaces: before?.namespaces ?? null };
  ended.value = true;
}

function enter(found: Session): void {
  session.value = found;
  paused.value = false;
  ended.value = false;
}

/** Logs in with a token, or with a user's name and password; raises ApiError if they are wrong. */
export async function logIn(secret: { token: string } | { user: string; password: string }): Promise<void> {
  enter(await send<Session>("POST", "/api/v1/session", secret));
  revision.value += 1;
}

export async function logOut(): Promise<void> {
  enter(await send<Session>("DELETE", "/api/v1/session"));
  revision.value += 1;
}

const LONGEST = 2 ** 31 - 1; // ms that a timer of a browser can wait
const AFTER = 1_000; // ms: the cookie is gone by then

/** Reads who uses the console with all other data, after a refusal, and when the session should have ended. */
export function watchSession(): void {
  const read = (): void => void readSession().catch(() => undefined); // the page itself says what is wrong
  effect(() => {
    revision.value;
    refused.value;
    untracked(read);
  });
  effect(() => {
    const expires = session.value?.expires;
    if (!expires) return;
    const wait = Math.max(0, Date.parse(expires) - Date.now()) + AFTER;
    const timer = setTimeout(read, Math.min(wait, LONGEST));
    return () => clearTimeout(timer);
  });
}
