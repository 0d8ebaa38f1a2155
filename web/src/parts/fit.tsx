/** What if: where a pod would go, or what it lacks and what would make it fit. Advice only. */
import { useState } from "preact/hooks";
import { ApiError, send, useApi } from "../api/client";
import type { FitAnswer, WhatIf } from "../api/shapes";
import { language } from "../state/preferences";
import { pathOf } from "../state/url";
import { type Key, t } from "../words";
import { asksText, messageOf } from "./decisions";
import { Num, NumHead, Said, Value } from "./figures";
import { bytes, NONE, number, shortId } from "./format";
import { errorText, Facts, Link, Panel, Scroll, Skeleton, Tag } from "./pieces";

const MIB = 1024 * 1024;
const LISTED = 10; // replicas and nodes
const WITHOUT_GPUS = "SCHED_NODE_UNREGISTERED";

// ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────────

/** The answer; `asked`: what it is about, where the page does not say it already. */
export function FitResult({ data, asked = false }: { data: FitAnswer; asked?: boolean }) {
  const fits = data.fitting >= data.replicas;
  const untried = data.cut && data.nodes.length === 0; // all replicas that were tried fit
  return (
    <div class="stack tight" role="status">
      <p>
        <Tag tone={fits ? "good" : data.fitting ? "warn" : "bad"}>
          {data.replicas === 1 ? (
            verdictOf(data)
          ) : (
            <Said
              text="fit.replicas"
              numbers={{
                n: ["pod.replicas_fitting", number(data.fitting)],
                all: ["pod.replicas", number(data.replicas)],
              }}
            />
          )}
        </Tag>
      </p>
      {asked && (
        <Facts
          rows={[
            ["col.asks", asksText(data.asks)],
            ["decided.policy", data.policy],
          ]}
        />
      )}
      {data.places.length > 0 && <Places data={data} />}
      {!fits && (untried ? <p class="muted">{t("fit.untried")}</p> : <Help data={data} />)}
    </div>
  );
}

export function verdictOf(data: Pick<FitAnswer, "fitting" | "replicas">): string {
  if (data.replicas === 1) return t(data.fitting ? "fit.yes" : "fit.no");
  return t("fit.replicas", { n: number(data.fitting), all: number(data.replicas) });
}

function Places({ data }: { data: FitAnswer }) {
  const rest = data.places.length - LISTED;
  return (
    <>
      <Scroll name="replicas" rows={data.places.length}>
        <table class="decisions">
          <thead>
            <tr>
              <th scope="col" class="num" data-names="replica">
                {t("fit.replica")}
              </th>
              <th scope="col">{t("col.node")}</th>
              <th scope="col">{t("col.gpus")}</th>
              <NumHead title="col.node_score" figure="decision.node_score" />
            </tr>
          </thead>
          <tbody>
            {data.places.slice(0, LISTED).map((one) => (
              <tr key={one.replica} data-key={String(one.replica)}>
                <td class="num" data-names="replica">
                  {number(one.replica + 1)}
                </td>
                <th scope="row">
                  <Link to={pathOf("nodes", one.node)}>{one.node}</Link>
                </th>
                <td class="wrap mono">
                  {one.gpus.map((gpu, place) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: the same GPU can occur twice, with two MIG instances
                    <span key={place}>
                      {place > 0 && t("comma")}
                      {shortId(gpu.uuid)}{" "}
                      <Value figure="decision.memory" of={gpu.uuid}>
                        {bytes(gpu.memory * MIB)}
                      </Value>
                    </span>
                  ))}
                </td>
                <Num figure="decision.node_score">{number(one.score, 2)}</Num>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {rest > 0 && <p class="muted">{t("fit.more", { n: number(rest) })}</p>}
    </>
  );
}

/** Which nodes lack how much, and which changes would help. */
function Help({ data }: { data: FitAnswer }) {
  return (
    <>
      <h3>{data.fitting ? t("fit.changes_next", { n: number(data.fitting + 1) }) : t("pending.changes")}</h3>
      {data.remedies.length === 0 ? (
        <p>{t("fit.no_remedy")}</p>
      ) : (
        <ul class="attention">
          {data.remedies.map((one) => (
            <li key={one.message}>
              <Tag>{t(`remedy.${one.kind}`)}</Tag>
              <span class="what">{language.value === "zh" ? one.message_zh : one.message}</span>
            </li>
          ))}
        </ul>
      )}
      {data.cut && <p class="muted">{t("fit.cut")}</p>}
      {data.idle_state !== "ok" && <p class="muted">{t(`fit.idle_${data.idle_state}`)}</p>}
      {data.lacks.length > 0 && <Lacks data={data} />}
    </>
  );
}

function Lacks({ data }: { data: FitAnswer }) {
  return (
    <>
      <h3>{t("fit.nearest")}</h3>
      <Scroll>
        <table class="decisions">
          <thead>
            <tr>
              <th scope="col">{t("col.node")}</th>
              <th scope="col">{t("fit.lacks")}</th>
              <th scope="col">{t("decided.verdict")}</th>
            </tr>
          </thead>
          <tbody>
            {nearest(data.lacks).map((one) => (
              <tr key={one.node}>
                <th scope="row">
                  <Link to={pathOf("nodes", one.node)}>{one.node}</Link>
                </th>
                <td>{lackText(one)}</td>
                <td class="wrap">{messageOf(one)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

type Lack = Pick<FitAnswer["lacks"][number], "memory" | "cores" | "gpus">;

/** Nodes that lack an amount come first; nodes without GPUs are listed only if there are no others. */
export function nearest<L extends Lack & { code: string }>(lacks: readonly L[]): L[] {
  const amount = (one: L): boolean => one.memory !== null || one.cores !== null;
  const withGpus = lacks.filter((one) => one.code !== WITHOUT_GPUS);
  const from = withGpus.length ? withGpus : lacks;
  return [...from.filter(amount), ...from.filter((one) => !amount(one))].slice(0, LISTED);
}

/** How much is missing on the GPU that comes closest, or how many GPUs: 4 GiB, 1 GPU. */
export function lackText(one: Lack): string {
  const parts = [one.memory ? bytes(one.memory * MIB) : "", one.cores ? t("asks.cores", { n: number(one.cores) }) : ""];
  if (one.gpus && (one.gpus > 1 || !parts.some(Boolean))) parts.push(t("asks.gpus", { n: number(one.gpus) }));
  return parts.filter(Boolean).join(t("comma")) || NONE;
}

/** What would make a pod fit that the extender knows; nothing if the extender cannot say it. */
export function FitOfPod({ namespace, pod }: { namespace: string; pod: string }) {
  const found = useApi<FitAnswer>(`/api/v1/fit/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`);
  if (found.state === "failed") return null;
  return (
    <Panel title={t("fit.now")} stale={found.state === "ok" && found.error !== undefined}>
      {found.state === "loading" ? <Skeleton rows={4} /> : <FitResult data={found.data} />}
    </Panel>
  );
}

// ── the form ──────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Wish {
  readonly gpus: string;
  readonly memory: string; // MiB
  readonly cores: string;
  readonly replicas: string;
  readonly type: string;
  readonly namespace: string;
}
const FIRST: Wish = { gpus: "1", memory: "", cores: "", replicas: "1", type: "", namespace: "default" };
const BOUNDS: Record<"gpus" | "memory" | "cores" | "replicas", readonly [number, number]> = {
  gpus: [1, 1024],
  memory: [1, 2_147_483_647],
  cores: [0, 100],
  replicas: [1, 10_000],
};

/** The request as the API takes it: what is empty is not given. */
export function wishOf(wish: Wish): Partial<WhatIf> {
  const amount = (text: string): number | null => (text.trim() === "" ? null : Number(text));
  return {
    namespace: wish.namespace.trim() || "default",
    gpus: amount(wish.gpus) ?? 1,
    replicas: amount(wish.replicas) ?? 1,
    ...(amount(wish.memory) === null ? {} : { memory: Number(wish.memory) }),
    ...(amount(wish.cores) === null ? {} : { cores: Number(wish.cores) }),
    ...(wish.type.trim() ? { type: wish.type.trim() } : {}),
  };
}

type Asked =
  | { state: "none" }
  | { state: "running" }
  | { state: "failed"; text: string }
  | { state: "done"; data: FitAnswer };

export function WhatIfPanel({ namespace }: { namespace: string | undefined }) {
  const [wish, setWish] = useState<Wish>({ ...FIRST, namespace: namespace ?? FIRST.namespace });
  const [asked, setAsked] = useState<Asked>({ state: "none" });
  const set = (field: keyof Wish) => (value: string) => setWish({ ...wish, [field]: value });
  const run = (event: Event): void => {
    event.preventDefault();
    setAsked({ state: "running" });
    send<FitAnswer>("POST", "/api/v1/fit", wishOf(wish), undefined, 45_000).then(
      (data) => setAsked({ state: "done", data }),
      (error: unknown) =>
        setAsked({ state: "failed", text: error instanceof ApiError ? errorText(error) : String(error) }),
    );
  };
  return (
    <Panel title={t("fit.title")}>
      <p class="muted">{t("fit.about")}</p>
      <form class="backtest-form what-if" onSubmit={run}>
        <Amount name="col.gpus" field="gpus" value={wish.gpus} set={set("gpus")} required />
        <Amount name="fit.memory" field="memory" value={wish.memory} set={set("memory")} hint={t("asks.whole")} />
        <Amount name="fit.cores" field="cores" value={wish.cores} set={set("cores")} />
        <Amount name="fit.replicas_field" field="replicas" value={wish.replicas} set={set("replicas")} required />
        <Text name="fit.type" value={wish.type} set={set("type")} hint="A100" />
        <Text name="col.namespace" value={wish.namespace} set={set("namespace")} hint="default" />
        <div>
          <button type="submit" class="button primary" disabled={asked.state === "running"}>
            {t("fit.run")}
          </button>
        </div>
      </form>
      {asked.state === "running" && <Skeleton rows={3} />}
      {asked.state === "failed" && (
        <p class="notice bad" role="alert">
          {asked.text}
        </p>
      )}
      {asked.state === "done" && <FitResult data={asked.data} asked />}
    </Panel>
  );
}

interface FieldProps {
  readonly name: Key;
  readonly value: string;
  readonly set: (value: string) => void;
  readonly hint?: string;
}

function Amount({
  name,
  field,
  value,
  set,
  hint,
  required = false,
}: FieldProps & { field: keyof typeof BOUNDS; required?: boolean }) {
  const [least, most] = BOUNDS[field];
  return (
    <label>
      {t(name)}
      <input
        type="number"
        min={least}
        max={most}
        step={1}
        required={required}
        value={value}
        placeholder={hint}
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}

function Text({ name, value, set, hint }: FieldProps) {
  return (
    <label>
      {t(name)}
      <input
        type="text"
        value={value}
        placeholder={hint}
        maxLength={200}
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}
