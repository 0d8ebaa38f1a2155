/** What the policy would have done in the past, and what a change of it would have done instead. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, isOlder, type Loaded, send } from "../api/client";
import type { Backtest, BacktestOutcome, BacktestProgress, PolicyBody } from "../api/shapes";
import { brakeText, secondsOf, settingText } from "../parts/cases";
import { Chart, type Line } from "../parts/chart";
import { colour } from "../parts/classes";
import { explained, Num, NumHead, Said, tip, Value } from "../parts/figures";
import { moment, number, percent } from "../parts/format";
import { useDark } from "../parts/heatmap";
import { Link, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { failureText } from "../parts/reclaim";
import { pick, Segments } from "../parts/segments";
import { language } from "../state/preferences";
import { may } from "../state/session";
import { pathOf } from "../state/url";
import { type Key, t, word } from "../words";

const SPANS = ["1d", "7d", "30d"] as const;
type Span = (typeof SPANS)[number];
const WITHIN = 70_000; // ms; the analyzer itself ends a replay after 50 s
const ASK_EVERY = 1_000; // ms
const PATH = "/api/v1/reclaim/backtest";
const LISTED = 200;

export function BacktestView({ policy }: { policy: Loaded<PolicyBody> }) {
  return (
    <Shown of={policy} rows={6}>
      {(data) => <Form key={JSON.stringify(inEffect(data))} policy={data} />}
    </Shown>
  );
}

/** The fields that can be tried, as the form has them. */
interface Tried {
  readonly confirmations: string;
  readonly grace: string;
  readonly min_pod_age: string;
  readonly max_per_hour: string;
  readonly include_held: boolean;
  readonly include_preparing: boolean;
}
type Field = keyof Tried;

function inEffect(policy: PolicyBody): Tried {
  return {
    confirmations: String(policy.confirmations),
    grace: settingText(policy.grace),
    min_pod_age: settingText(policy.min_pod_age),
    max_per_hour: String(policy.max_per_hour),
    include_held: policy.include_held,
    include_preparing: policy.include_preparing,
  };
}

/** The fields that differ from the policy in effect, as the API takes them. */
export function changesOf(policy: PolicyBody, tried: Tried): Record<string, string | number | boolean> {
  const known = inEffect(policy);
  const found: Record<string, string | number | boolean> = {};
  for (const field of ["confirmations", "max_per_hour"] as const)
    if (tried[field] !== known[field]) found[field] = Number(tried[field]);
  for (const field of ["grace", "min_pod_age"] as const)
    if (secondsOf(tried[field]) !== policy[field]) found[field] = secondsOf(tried[field]) ?? tried[field];
  for (const field of ["include_held", "include_preparing"] as const)
    if (tried[field] !== known[field]) found[field] = tried[field];
  return found;
}

type Ran =
  | { readonly state: "none" | "running" | "missing" }
  | { readonly state: "failed"; readonly error: string }
  | { readonly state: "done"; readonly data: Backtest };

function Form({ policy }: { policy: PolicyBody }) {
  const [tried, setTried] = useState(() => inEffect(policy));
  const [span, setSpan] = useState<Span>("7d");
  const [within, setWithin] = useState("1h");
  const [ran, setRan] = useState<Ran>({ state: "none" });
  const wrong = [tried.grace, tried.min_pod_age].some((text) => wrongOf(text)) || wrongOf(within, BUSY_WITHIN) !== null;
  const run = async (event: Event): Promise<void> => {
    event.preventDefault();
    setRan({ state: "running" });
    const body = { policy: changesOf(policy, tried), since: span, busy_within: secondsOf(within) };
    try {
      setRan({ state: "done", data: await send<Backtest>("POST", PATH, body, undefined, WITHIN) });
    } catch (failure) {
      setRan(isOlder(failure) ? { state: "missing" } : { state: "failed", error: failureText(failure) });
    }
  };
  const set = (field: Field) => (value: string | boolean) => setTried({ ...tried, [field]: value });
  return (
    <div class="stack">
      <Panel title={t("idle_view.backtest")}>
        <p class="muted">{t("backtest.about")}</p>
        {may("operate") ? (
          <form class="backtest-form" onSubmit={run}>
            <div class="field">
              <span aria-hidden="true">{t("backtest.since")}</span>
              <Segments
                label={t("backtest.since")}
                options={SPANS}
                at={pick(SPANS, span, "7d")}
                names={(one) => t("unit.days", { n: one.slice(0, -1) })}
                choose={setSpan}
              />
            </div>
            <Text name="backtest.busy_within" value={within} set={setWithin} duration bounds={BUSY_WITHIN} />
            <h3 class="wide">
              {t("backtest.changes")} <span class="muted small">{t("backtest.changes_note")}</span>
            </h3>
            <Text name="policy.confirmations" value={tried.confirmations} set={set("confirmations")} />
            <Text name="policy.grace" value={tried.grace} set={set("grace")} duration />
            <Text name="policy.min_pod_age" value={tried.min_pod_age} set={set("min_pod_age")} duration />
            <Text name="policy.max_per_hour" value={tried.max_per_hour} set={set("max_per_hour")} />
            <label class="check">
              <input
                type="checkbox"
                checked={tried.include_held}
                onChange={(event) => set("include_held")(event.currentTarget.checked)}
              />
              {t("policy.include_held")}
            </label>
            <label class="check">
              <input
                type="checkbox"
                checked={tried.include_preparing}
                onChange={(event) => set("include_preparing")(event.currentTarget.checked)}
              />
              {t("policy.include_preparing")}
            </label>
            <div>
              <button type="submit" class="button primary" disabled={wrong || ran.state === "running"}>
                {t("backtest.run")}
              </button>
            </div>
          </form>
        ) : (
          <p class="notice">{t("backtest.log_in")}</p>
        )}
        {ran.state === "running" && <Progress />}
        {ran.state === "missing" && <p class="notice">{t("backtest.missing")}</p>}
        {ran.state === "failed" && (
          <p class="notice bad" role="alert">
            {ran.error}
          </p>
        )}
      </Panel>
      {ran.state === "done" && <Result data={ran.data} />}
    </div>
  );
}

interface Bounds {
  readonly least: number; // seconds
  readonly most: number;
}
const BUSY_WITHIN: Bounds = { least: 60, most: 7 * 86_400 }; // as the API takes it

/** What is wrong with a duration; null: nothing. */
export function wrongOf(text: string, bounds: Bounds | null = null): string | null {
  const seconds = secondsOf(text);
  if (seconds === null) return t("backtest.wrong");
  if (!bounds || (seconds >= bounds.least && seconds <= bounds.most)) return null;
  return t("backtest.bounds", { least: settingText(bounds.least), most: settingText(bounds.most) });
}

function Text({
  name,
  value,
  set,
  duration = false,
  bounds = null,
}: {
  name: Key;
  value: string;
  set: (value: string) => void;
  duration?: boolean;
  bounds?: Bounds | null;
}) {
  const wrong = duration ? wrongOf(value, bounds) : null;
  return (
    <label>
      {t(name)}
      <input
        type="text"
        inputMode={duration ? "text" : "numeric"}
        pattern={duration ? undefined : "[0-9]+"}
        required
        value={value}
        aria-invalid={wrong !== null}
        onInput={(event) => set(event.currentTarget.value)}
      />
      {wrong && (
        <span class="bad small" role="alert">
          {wrong}
        </span>
      )}
    </label>
  );
}

/** How far the replay is; an analyzer that does not say so shows a bar without a length. */
function Progress() {
  const [done, setDone] = useState<number | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const timer = setInterval(() => {
      get<BacktestProgress>(PATH, {}, stop.signal).then(
        (found) => setDone(found.running ? found.done : null),
        () => undefined, // the answer of the replay itself says what is wrong
      );
    }, ASK_EVERY);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, []);
  return (
    <div role="status">
      <p class="muted">
        {t("backtest.running")} {done !== null && percent(done)}
      </p>
      <div class="progress" aria-hidden="true">
        <span style={{ width: `${Math.round((done ?? 0.02) * 100)}%` }} />
      </div>
    </div>
  );
}

// ── what came of it ───────────────────────────────────────────────────────────────────────────────────────────────

function Result({ data }: { data: Backtest }) {
  const outcomes = data.proposed ? [data.current, data.proposed] : [data.current];
  const nothing = outcomes.every((one) => one.actions === 0);
  return (
    <>
      <Panel title={t("backtest.won")} note={<Known data={data} />}>
        {data.changed.length > 0 && (
          <div class="tags">
            {data.changed.map((one) => (
              <Tag key={one.key}>
                <span class="mono">
                  {one.key}: {one.current} → {one.proposed}
                </span>
              </Tag>
            ))}
          </div>
        )}
        {data.coverage.analyses === 0 && <p class="notice warn">{t("backtest.empty")}</p>}
        {!data.complete && <p class="notice warn">{t("backtest.cut", { time: moment(data.replayed_until) })}</p>}
        {data.coverage.gaps.length > 0 && data.coverage.analyses > 0 && (
          <p class="notice">{t("backtest.gaps", { n: number(data.coverage.gaps.length) })}</p>
        )}
        <Compared outcomes={outcomes} />
        {nothing ? <p class="notice">{t("backtest.nothing")}</p> : <Charts outcomes={outcomes} step={data.step} />}
      </Panel>
      <div class="columns">
        <div class="two-thirds">
          <Panel title={t("backtest.by_namespace")}>
            <Namespaces outcomes={outcomes} />
          </Panel>
        </div>
        <div class="third">
          <Panel title={t("backtest.not_applied")}>
            <ul class="sentences">
              {data.not_applied_codes.map((code, place) => (
                <li key={code}>{notApplied(code, data.not_applied[place] ?? code)}</li>
              ))}
            </ul>
            <HeldBack outcome={outcomes.at(-1)!} />
          </Panel>
        </div>
        <Panel title={t("backtest.list")} note={t(data.proposed ? "backtest.proposed" : "backtest.current")}>
          <Listed outcome={outcomes.at(-1)!} />
        </Panel>
      </div>
    </>
  );
}

const notApplied = (code: string, sentence: string): string =>
  language.value === "en" ? sentence : word(`not_applied.${code}`, sentence);

function Known({ data }: { data: Backtest }) {
  return (
    <Said
      text="backtest.span"
      values={{ begin: moment(data.begin), end: moment(data.end) }}
      numbers={{
        coverage: ["policy.coverage", percent(data.coverage.ratio)],
        n: ["policy.analyses", number(data.coverage.analyses)],
      }}
    />
  );
}

const NAMES = ["backtest.current", "backtest.proposed"] as const;
type Sum =
  | "gpu_hours"
  | "false_alarms"
  | "actions"
  | "workloads"
  | "unknown_gpu_hours"
  | "busy_later"
  | "ended"
  | "still_idle";
const SUMS: readonly (readonly [Sum, Key, number])[] = [
  ["gpu_hours", "backtest.won", 1],
  ["false_alarms", "backtest.false_alarms", 0],
  ["actions", "backtest.actions", 0],
  ["workloads", "backtest.workloads", 0],
  ["busy_later", "backtest.busy_later", 0],
  ["ended", "backtest.ended", 0],
  ["still_idle", "backtest.still_idle", 0],
  ["unknown_gpu_hours", "backtest.unknown", 1],
];
const KEYS = ["current", "proposed"] as const; // of the outcomes, for programs that read the page

function Compared({ outcomes }: { outcomes: readonly BacktestOutcome[] }) {
  return (
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span class="sr">{t("col.what")}</span>
            </th>
            {outcomes.map((_, place) => (
              <th key={NAMES[place]} scope="col" class="num" data-names="outcome">
                {t(NAMES[place]!)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {SUMS.map(([sum, name, digits]) => (
            <tr key={sum}>
              <th scope="row">
                <span class="heading" tabIndex={0} {...tip(explained(`policy.${sum}`))}>
                  {t(name)}
                </span>
              </th>
              {outcomes.map((one, place) => (
                <Num key={NAMES[place]} figure={`policy.${sum}`} of={KEYS[place]}>
                  {number(one[sum], digits)}
                </Num>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Charts({ outcomes, step }: { outcomes: readonly BacktestOutcome[]; step: number }) {
  const per: Key = step < 86_400 ? "backtest.per_hour" : "backtest.per_day";
  const times = useMemo(() => outcomes[0]!.series.map((one) => one.time), [outcomes]);
  return (
    <div class="columns">
      <div class="half">
        <h3>{t(per, { what: t("backtest.won") })}</h3>
        <Chart
          name="backtest-gpu-hours"
          step={step}
          times={times}
          lines={useLines(outcomes, "gpu_hours")}
          label={t("backtest.won")}
          show={(value) => number(value, 1)}
          height={180}
        />
      </div>
      <div class="half">
        <h3>{t(per, { what: t("backtest.false_alarms") })}</h3>
        <Chart
          name="backtest-false-alarms"
          step={step}
          times={times}
          lines={useLines(outcomes, "false_alarms")}
          label={t("backtest.false_alarms")}
          show={(value) => number(value, 1)}
          top={2}
          height={180}
        />
      </div>
    </div>
  );
}

const COLOURS = ["busy", "idle-held"] as const;

function useLines(outcomes: readonly BacktestOutcome[], what: "gpu_hours" | "false_alarms"): Line[] {
  const dark = useDark();
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours follow the theme
  return useMemo(
    () =>
      outcomes.map((one, place) => ({
        key: KEYS[place]!,
        figure: `policy.${what}`,
        name: t(NAMES[place]!),
        colour: colour(COLOURS[place]!),
        values: one.series.map((point) => point[what]),
        dashed: place === 1,
      })),
    [outcomes, what, dark],
  );
}

function Namespaces({ outcomes }: { outcomes: readonly BacktestOutcome[] }) {
  const names = [...new Set(outcomes.flatMap((one) => one.namespaces.map((row) => row.namespace)))];
  if (names.length === 0) return <p class="muted">{t("backtest.nothing")}</p>;
  const rowOf = (one: BacktestOutcome, name: string) => one.namespaces.find((row) => row.namespace === name);
  return (
    <Scroll>
      <table>
        <thead>
          <tr>
            <th scope="col">{t("col.namespace")}</th>
            {outcomes.map((_, place) => (
              <NumHead key={NAMES[place]} title={NAMES[place]!} figure="policy.gpu_hours" />
            ))}
            <NumHead title="col.false_alarms" figure="policy.false_alarms" />
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <tr key={name} data-key={name}>
              <th scope="row">
                <Link to={pathOf("namespaces", name)}>{name}</Link>
              </th>
              {outcomes.map((one, place) => (
                <Num key={NAMES[place]} figure="policy.gpu_hours" of={`${name}/${KEYS[place]}`}>
                  {number(rowOf(one, name)?.gpu_hours ?? 0, 1)}
                </Num>
              ))}
              <td class="num">
                {outcomes.map((one, place) => (
                  <span key={NAMES[place]}>
                    {place > 0 && " / "}
                    <Value figure="policy.false_alarms" of={`${name}/${KEYS[place]}`}>
                      {number(rowOf(one, name)?.false_alarms ?? 0)}
                    </Value>
                  </span>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function HeldBack({ outcome }: { outcome: BacktestOutcome }) {
  const held = Object.entries(outcome.held_back).sort(([, a], [, b]) => b - a);
  if (held.length === 0) return null;
  return (
    <>
      <h3>{t("backtest.held")}</h3>
      <ul class="sentences">
        {held.map(([brake, times]) => (
          <li key={brake} data-key={brake}>
            <Said
              text="backtest.times"
              numbers={{ n: ["policy.held_back", number(times)] }}
              values={{ what: brakeText(brake) }}
            />
          </li>
        ))}
      </ul>
    </>
  );
}

const TONES = { false_alarm: "bad", busy_later: "warn", ended: "plain", still_idle: "good" } as const;

function Listed({ outcome }: { outcome: BacktestOutcome }) {
  if (outcome.list.length === 0) return <p class="muted">{t("backtest.nothing")}</p>;
  const hidden = outcome.list.length - LISTED + outcome.omitted;
  return (
    <>
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("col.workload")}</th>
              <th scope="col">{t("col.when")}</th>
              <th scope="col">{t("col.after")}</th>
              <NumHead title="col.gpu_hours_won" figure="policy.gpu_hours" />
            </tr>
          </thead>
          <tbody>
            {outcome.list.slice(0, LISTED).map((one) => (
              <tr key={`${one.pod_uid}${one.at}`} data-key={`${one.pod_uid}/${one.at}`}>
                <th scope="row">
                  <Link to={pathOf("workloads", one.namespace, one.pod)}>
                    {one.namespace}/{one.pod}
                  </Link>
                </th>
                <td>{moment(one.at)}</td>
                <td>
                  <Tag tone={TONES[one.end]}>{t(`backtest_end.${one.end}`)}</Tag>
                </td>
                <Num figure="policy.gpu_hours">{number(one.gpu_hours, 1)}</Num>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {hidden > 0 && <p class="muted small">{t("backtest.omitted", { n: number(hidden) })}</p>}
    </>
  );
}
