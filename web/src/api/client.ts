/** Requests to the analyzer: one hook, one error type, old data kept and marked while new data is on its way. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { apiRoot } from "../state/url";

const WITHIN = 20_000; // ms until an answer must be complete

/** An error as the API reports it, or one of the network. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
    readonly status = 0,
  ) {
    super(message);
  }
}

export type Loaded<T> =
  | { state: "loading"; data?: undefined; error?: undefined }
  | { state: "failed"; data?: undefined; error: ApiError }
  | { state: "ok"; data: T; at: number; error?: ApiError | undefined }; // with error: the data is old

const NO_OPERATION = ["NOT_FOUND", "METHOD_NOT_ALLOWED", "HTTP_404", "HTTP_405"];

/** Whether the analyzer has no such operation: it is older than this console. A thing that is gone has another code. */
export const isOlder = (failure: unknown): boolean =>
  failure instanceof ApiError && NO_OPERATION.includes(failure.code);
export const isMissing = (loaded: Loaded<unknown>): boolean => loaded.state === "failed" && isOlder(loaded.error);
/** Whether this user may not see it. */
export const isForbidden = (loaded: Loaded<unknown>): boolean =>
  loaded.state === "failed" && loaded.error.status === 403;

/** Increases when all shown data should be read again. */
export const revision = signal(0);
/** When an answer last arrived, in ms. */
export const updated = signal<number | null>(null);
/** Whether the last request failed on the way: the analyzer is not reachable. */
export const offline = signal(false);

/** How the analysis was made: the seconds that its means cover, and the score below which a GPU is low. */
export interface Made {
  readonly window_seconds: number | null;
  readonly low_score: number | null;
}
/** Of the last answer that said it. */
export const analysed = signal<Made>({ window_seconds: null, low_score: null });

/** Increases when a request was refused because nobody is logged in. */
export const refused = signal(0);
/** Whether nobody may read at this moment: what is shown stays, and is not asked for again. */
export const paused = signal(false);

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export async function get<T>(path: string, query: Query = {}, stop?: AbortSignal): Promise<T> {
  return send<T>("GET", withQuery(path, query), undefined, stop);
}

export async function send<T>(
  method: string,
  path: string,
  body?: unknown,
  stop?: AbortSignal,
  within = WITHIN,
): Promise<T> {
  return (await exchange<T>(method, path, body, stop, null, within)).data;
}

/** An answer, and the tag that its content has as long as it does not change. */
interface Tagged<T> {
  readonly data: T;
  readonly tag: string | null;
}

/** Sends a request. If the answer is still the one that is `known`, it is neither read nor parsed again. */
async function exchange<T>(
  method: string,
  path: string,
  body: unknown,
  stop: AbortSignal | undefined,
  known: Tagged<T> | null,
  within = WITHIN,
): Promise<Tagged<T>> {
  const limit = AbortSignal.timeout(within);
  const signal = stop ? AbortSignal.any([stop, limit]) : limit;
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(apiRoot + path.replace(/^\//, ""), {
      method,
      signal,
      credentials: "same-origin",
      ...content(body),
    });
    offline.value = false;
    const tag = answer.headers.get("etag");
    if (known !== null && known.tag !== null && known.tag === tag && answer.ok) {
      void answer.body?.cancel();
      updated.value = Date.now();
      return known;
    }
    text = await answer.text().catch((error: unknown) => {
      if (signal.aborted) throw error;
      return "";
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    if (limit.aborted) throw new ApiError("NO_ANSWER", "slow");
    offline.value = true;
    throw new ApiError("NO_CONNECTION", "unreachable");
  }
  if (answer.status === 401) refused.value += 1;
  if (!answer.ok) throw errorOf(answer.status, text);
  const parsed = parse<T>(text, answer.status);
  updated.value = Date.now();
  const made = madeOf(parsed);
  if (made && (made.window_seconds !== analysed.peek().window_seconds || made.low_score !== analysed.peek().low_score))
    analysed.value = made;
  return { data: parsed, tag: answer.headers.get("etag") };
}

/** The part of an answer that says how the analysis was made, if it has one. */
function madeOf(answer: unknown): Made | null {
  const { parts } = (answer ?? {}) as { parts?: readonly ({ name: string } & Partial<Made>)[] };
  const found = Array.isArray(parts) ? parts.find((one) => one.name === "analysis") : null;
  return found?.window_seconds ? { window_seconds: found.window_seconds, low_score: found.low_score ?? null } : null;
}

function content(body: unknown): RequestInit {
  if (body === undefined) return { headers: { accept: "application/json" } };
  return { headers: { accept: "application/json", "content-type": "application/json" }, body: JSON.stringify(body) };
}

/** What an answer holds. An answer that was cut off is an error, never an empty list. */
function parse<T>(text: string, status: number): T {
  if (text === "" && status === 204) return undefined as T;
  try {
    const parsed = JSON.parse(text) as T;
    if (typeof parsed === "object" && parsed !== null) return parsed;
  } catch {
    // reported below
  }
  throw new ApiError("HALF_ANSWER", "half", null, status);
}

export function withQuery(path: string, query: Query): string {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) made.append(name, String(one));
  }
  const text = made.toString();
  return text ? `${path}?${text}` : path;
}

function errorOf(status: number, text: string): ApiError {
  try {
    const { code, message, hint } = (
      JSON.parse(text) as { error: { code: string; message: string; hint: string | null } }
    ).error;
    return new ApiError(code, message, hint, status);
  } catch {
    return new ApiError(`HTTP_${status}`, "refused", null, status);
  }
}

/** Reads an address now and at every revision; null reads nothing. Data of another address is never shown. */
export function useApi<T>(path: string | null, query: Query = {}): Loaded<T> {
  const address = path === null ? null : withQuery(path, query);
  const [found, setFound] = useState<{ address: string | null; loaded: Loaded<T> }>({
    address,
    loaded: { state: "loading" },
  });
  const known = useRef<{ readonly address: string; readonly answer: Tagged<T> } | null>(null);
  const now = revision.value;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new revision reads the same address again
  useEffect(() => {
    if (address === null || (paused.peek() && known.current?.address === address)) return;
    const stop = new AbortController();
    const before = known.current?.address === address ? known.current.answer : null;
    exchange<T>("GET", address, undefined, stop.signal, before).then(
      (answer) => {
        known.current = { address, answer };
        setFound({ address, loaded: { state: "ok", data: answer.data, at: Date.now() } });
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const failure = error instanceof ApiError ? error : new ApiError("CONSOLE", String(error));
        setFound((before) =>
          before.address === address && before.loaded.state === "ok" && failure.status !== 403
            ? { address, loaded: { ...before.loaded, error: failure } }
            : { address, loaded: { state: "failed", error: failure } },
        );
      },
    );
    return () => stop.abort();
  }, [address, now]);
  return found.address === address ? found.loaded : { state: "loading" };
}
