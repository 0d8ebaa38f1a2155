/** Cases of taking GPUs back: their state, countdown and brakes, and what a person can do about them. */
import "../style/reclaim.css";
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, isMissing, isOlder, revision, send } from "../api/client";
import type { CaseRow, PolicyBody, ReclaimList } from "../api/shapes";
import { language } from "../state/preferences";
import { may, restricted, session } from "../state/session";
import { type Key, t, word } from "../words";
import {
  actionsOf,
  actorName,
  brakesOf,
  brakeText,
  type CaseAction,
  isOpen,
  nextOf,
  settingOf,
  signalText,
  stateKey,
  stateName,
  toneOf,
} from "./cases";
import { duration, moment } from "./format";
import { Icon } from "./icon";
import { Dialog, Empty, errorText, Shown, Tag } from "./pieces";

const MOST = 10_000; // cases that one answer has
export const CASES = { limit: MOST };

/** The states of a request; an analyzer that is older than this console says so in plain words. */
export function ReclaimShown<T>(props: Parameters<typeof Shown<T>>[0]) {
  if (isMissing(props.of)) return <Empty title={t("reclaim.missing")} why={t("reclaim.missing_why")} />;
  return <Shown {...props} />;
}

// ── one case ──────────────────────────────────────────────────────────────────────────────────────────────────────

export function CaseTag({ row }: { row: CaseRow }) {
  return (
    <Tag tone={toneOf(row)} title={t(`case_about.${stateKey(row)}` as Key)}>
      {stateName(row)}
    </Tag>
  );
}

/** What happens next, and when; it counts down by the second. */
export function Countdown({ row, needed, dry }: { row: CaseRow; needed: number | null; dry: boolean }) {
  const next = nextOf(row, dry);
  if (!next) return <span class="muted">–</span>;
  if (next.at === undefined) return <>{t(next.key, { n: row.confirmations, all: needed ?? "?" })}</>;
  return <Until at={next.at} text={next.key} />;
}

function Until({ at, text }: { at: number; text: Key }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const left = at - now / 1000;
  const shown = left > 0 ? t(text, { time: duration(left) }) : t("case_next.now");
  return <time title={moment(at)}>{shown}</time>;
}

/** The brakes in words; in a table the first of them, with the number of the others. */
export function Brakes({ row, all = false }: { row: CaseRow; all?: boolean }) {
  if (row.held_by.length === 0) {
    if (!all) return <span class="muted">–</span>;
    return <p class="muted">{t(freeText(row))}</p>;
  }
  if (!all) {
    return (
      <span title={brakesOf(row).map(heldText).join("\n")}>
        {brakeText(row.held_by[0]!)} {row.held_by.length > 1 && <b>{t("more", { n: row.held_by.length - 1 })}</b>}
      </span>
    );
  }
  return (
    <ul class="sentences">
      {brakesOf(row).map((one) => (
        <li key={one.brake}>
          {brakeText(one.brake)} {settingOf(one) && <code>{settingOf(one)}</code>}
        </li>
      ))}
    </ul>
  );
}

type Held = ReturnType<typeof brakesOf>[number];
const heldText = (one: Held): string => [brakeText(one.brake), settingOf(one)].filter(Boolean).join(" ");

function freeText(row: CaseRow): Key {
  if (!isOpen(row)) return "case.at_rest";
  return row.state === "candidate" ? "case.counting" : "case.not_held";
}

/** The signs of use beyond the GPU, and what could not be read: they can hold a case back. */
export function Signals({ row }: { row: CaseRow }) {
  const signals = row.signals ?? []; // an older analyzer has none
  if (signals.length === 0) return null;
  return (
    <>
      <h3>{t("case.signals")}</h3>
      <ul class="sentences">
        {signals.map((signal) => (
          <li key={`${signal.name} ${signal.detail}`}>{signalText(signal)}</li>
        ))}
      </ul>
    </>
  );
}

// ── actions ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** What is asked before something is changed. It keeps the case that the button was pressed for: rows move. */
interface Question {
  readonly row: CaseRow;
  readonly action: CaseAction;
  readonly dry: boolean; // a dry run: what is approved is only recorded
}
const question = signal<Question | null>(null);
/** What was done last; read out by screen readers, and shown above the page. */
const told = signal("");

/** The open question, and what was done last; once on every page with cases. */
export function Acting() {
  // on another page they would be old news
  useEffect(
    () => () => {
      told.value = "";
      question.value = null;
    },
    [],
  );
  const close = (): void => {
    question.value = null;
  };
  return (
    <>
      <p class={told.value ? "notice" : "sr"} role="status">
        {told.value && <Icon name="check" />} {told.value}
      </p>
      {question.value && <AskCase {...question.value} close={close} />}
    </>
  );
}

/** Asks before something is changed. An error stays in the dialog, so that it can be tried again. */
function Confirm({
  title,
  act,
  close,
  children,
}: {
  title: string;
  act: () => Promise<unknown>;
  close: () => void;
  children: ComponentChildren;
}) {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await act();
      told.value = t("case.done", { action: title });
      close();
      revision.value += 1;
    } catch (failure) {
      setError(failureText(failure));
      if (failure instanceof ApiError) revision.value += 1; // somebody else was faster: show what is true now
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form class="form" onSubmit={submit}>
        {children}
        {error && (
          <p class="notice bad" role="alert">
            {error}
          </p>
        )}
        <div class="row">
          <button type="button" class="button" onClick={close}>
            {t("cancel")}
          </button>
          <button type="submit" class="button primary" disabled={busy}>
            {title}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const END = /[.!?。！？]$/;

/** What went wrong, in sentences. The hint of a case that has moved on is for programs. */
export function failureText(failure: unknown): string {
  if (!(failure instanceof ApiError)) return String(failure);
  const said = errorText(failure);
  const hint = failure.code === "CASE_UNFIT" ? t("case.moved_on") : language.value === "en" ? failure.hint : null;
  const stop = END.test(said) ? "" : language.value === "zh" ? "。" : ".";
  return hint ? `${said}${stop} ${hint}` : said;
}

const HOUR = 3600;
const RESTS = [HOUR, 4 * HOUR, 24 * HOUR, 7 * 24 * HOUR];

export function CaseActions({ row, dry }: { row: CaseRow; dry: boolean }) {
  if (!may("operate")) return null;
  return (
    <div class="case-actions">
      {actionsOf(row).map((action) => (
        <button
          key={action}
          type="button"
          class={action === "approve" ? "button primary" : "button"}
          onClick={() => {
            question.value = { row, action, dry };
          }}
        >
          {t(`case.${action}`)}
        </button>
      ))}
    </div>
  );
}

function AskCase({ row, dry, action, close }: Question & { readonly close: () => void }) {
  const [rest, setRest] = useState(24 * HOUR);
  const act = async (): Promise<void> => {
    const path = `/api/v1/reclaim/${encodeURIComponent(row.id)}/${action}`;
    try {
      await send("POST", action === "snooze" ? `${path}?seconds=${rest}` : path);
    } catch (failure) {
      throw isOlder(failure) && action === "restore" ? t("case.no_restore") : failure;
    }
  };
  return (
    <Confirm title={t(`case.${action}`)} act={act} close={close}>
      <p>{t(`case.${action}_text`, { pod: `${row.namespace}/${row.pod}` })}</p>
      {action === "approve" && dry && <p>{t("case.approve_dry")}</p>}
      {(action === "snooze" || action === "exempt") && row.state === "acting" && !row.dry_run && (
        <p>{t("case.too_late")}</p>
      )}
      {action === "snooze" && (
        <label>
          {t("case.snooze_for")}
          <select value={rest} onChange={(event) => setRest(Number(event.currentTarget.value))}>
            {RESTS.map((one) => (
              <option key={one} value={one}>
                {duration(one)}
              </option>
            ))}
          </select>
        </label>
      )}
    </Confirm>
  );
}

/** Why there are no buttons, for who may not press them. */
export function WhyNoActions() {
  if (may("operate")) return null;
  return <p class="muted small">{t(session.value?.can_log_in ? "case.log_in" : "case.read_only")}</p>;
}

// ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────────

/** Whether anything is done at all, who stopped it, and the switch. */
export function Mode({ data, policy }: { data: ReclaimList; policy: PolicyBody | null }) {
  const stopped = data.stopped_by !== null;
  const cut = data.mode === "live" && policy?.kube === "down";
  const halted = stopped || data.breaker.open || cut;
  const kind = halted ? "notice bad" : data.mode === "live" ? "notice warn" : "notice";
  return (
    <div class={`${kind} reclaim-mode`}>
      <Icon name={kind === "notice" ? "info" : "warning"} />
      <span class="grow">
        {stopped && <b>{stoppedText(data.stopped_by!)} </b>}
        {cut && <b>{t("without.kube_down")} </b>}
        {data.breaker.open && (
          <b>
            {t("reclaim.breaker", {
              time: moment(data.breaker.since),
              turned: data.breaker.turned,
              of: data.breaker.of,
            })}{" "}
          </b>
        )}
        {halted
          ? `${t("policy.mode")}${t("join")}${word(`policy_mode.${data.mode}`, data.mode)}`
          : t(`reclaim.${data.mode}` as Key)}
        <Changed data={data} />
      </span>
      {data.mode !== "off" && <Switch stopped={stopped || data.breaker.open} fixed={data.stopped_by === "settings"} />}
    </div>
  );
}

/** The settings that differ from their defaults: with the defaults, the same workloads may be treated otherwise. */
function Changed({ data }: { data: ReclaimList }) {
  const changed = data.changed ?? []; // an older analyzer does not say
  if (changed.length === 0) return null;
  return (
    <details>
      <summary>{t("reclaim.changed", { n: changed.length })}</summary>
      <ul class="sentences">
        {changed.map((one) => (
          <li key={one.setting}>
            <code>
              {one.setting}: {one.value}
            </code>{" "}
            {t("reclaim.default", { value: one.default })}
          </li>
        ))}
      </ul>
    </details>
  );
}

export function stoppedText(who: string): string {
  return who === "settings" ? t("reclaim.stopped_settings") : t("reclaim.stopped", { who: actorName(who) });
}

function Switch({ stopped, fixed }: { stopped: boolean; fixed: boolean }) {
  const [asking, setAsking] = useState(false);
  if (!may("operate") || restricted.value || fixed) return null;
  const word = stopped ? "start" : "stop";
  return (
    <>
      <button type="button" class="button" onClick={() => setAsking(true)}>
        {t(`reclaim.${word}`)}
      </button>
      {asking && (
        <Confirm
          title={t(`reclaim.${word}_title`)}
          act={() => send("POST", `/api/v1/reclaim/${word}`)}
          close={() => setAsking(false)}
        >
          <p>{t(`reclaim.${word}_text`)}</p>
        </Confirm>
      )}
    </>
  );
}
