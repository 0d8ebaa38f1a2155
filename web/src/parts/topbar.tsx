/** The bar above every page: search, namespaces, time range, freshness, look and user. */
import { useState } from "preact/hooks";
import { offline, revision, updated, useApi } from "../api/client";
import { connection } from "../api/live";
import type { NamespaceList } from "../api/shapes";
import { now } from "../state/clock";
import { language, REFRESH, refresh, theme } from "../state/preferences";
import { period, RANGES, range, scope, setPeriod, setRange, setScope, span } from "../state/scope";
import { t } from "../words";
import { duration, shortPeriod } from "./format";
import { Icon } from "./icon";
import { Menu } from "./menu";
import { toggled } from "./rows";
import { SearchEverywhere } from "./searcheverywhere";
import { UserMenu } from "./usermenu";

export function TopBar() {
  return (
    <header class="top">
      <SearchEverywhere />
      <div class="top-rest">
        <ScopePicker />
        <span class="grow" />
        <DataHealth />
        <TimeRange />
        <RefreshMenu />
        <LookMenu />
        <UserMenu />
      </div>
    </header>
  );
}

/** The usual ranges as buttons, or as a menu where there is little room, and a range of the user's own. */
function TimeRange() {
  const own = period.value;
  const text = own ? shortPeriod(own.from, own.to) : range.value;
  return (
    <>
      <div class="segments hide-small" role="group" aria-label={t("range.label")}>
        {RANGES.map((one) => (
          <button key={one} type="button" aria-pressed={!own && range.value === one} onClick={() => setRange(one)}>
            {one}
          </button>
        ))}
      </div>
      <Menu
        label={own ? text : t("range.custom")}
        icon="clock"
        kind={own ? "chip on hide-small" : "button quiet hide-small"}
        hideLabel={!own}
      >
        {(close) => <OwnRange close={close} />}
      </Menu>
      <Menu label={text} icon="clock" kind="chip only-small">
        {(close) => (
          <div class="choices">
            {RANGES.map((one) => (
              <label key={one}>
                <input type="radio" name="range" checked={!own && range.value === one} onChange={() => setRange(one)} />
                {one}
              </label>
            ))}
            <hr />
            <OwnRange close={close} />
          </div>
        )}
      </Menu>
    </>
  );
}

/** Begin and end in local time. What is wrong is said, and stays in the fields. */
function OwnRange({ close }: { close: () => void }) {
  const end = period.value?.to ?? Math.floor(Date.now() / 1000);
  const [from, setFrom] = useState(localMinute(period.value?.from ?? end - 6 * 3600));
  const [to, setTo] = useState(localMinute(end));
  const [wrong, setWrong] = useState(false);
  const apply = (event: Event): void => {
    event.preventDefault();
    const chosen = { from: Date.parse(from) / 1000, to: Date.parse(to) / 1000 };
    const good = chosen.from < chosen.to;
    setWrong(!good);
    if (!good) return;
    setPeriod(chosen);
    close();
  };
  return (
    <form class="form own-range" onSubmit={apply}>
      <label>
        {t("range.from")}
        <input type="datetime-local" required value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
      </label>
      <label>
        {t("range.to")}
        <input type="datetime-local" required value={to} onInput={(event) => setTo(event.currentTarget.value)} />
      </label>
      <p class="muted small">{t("range.zone", { zone: Intl.DateTimeFormat().resolvedOptions().timeZone })}</p>
      {wrong && (
        <p class="notice bad" role="alert">
          {t("range.wrong")}
        </p>
      )}
      <button type="submit" class="button primary">
        {t("range.apply")}
      </button>
    </form>
  );
}

/** A moment as an input for date and time takes it. */
function localMinute(seconds: number): string {
  const date = new Date(seconds * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The range that charts show, as text. */
export function rangeText(): string {
  const own = period.value;
  return own ? shortPeriod(own.from, own.to) : span.value.range;
}

/** "My GPUs": shows only these namespaces, by a link that can be shared. */
function ScopePicker() {
  const wanted = scope.value;
  const label = wanted.length === 0 ? t("scope.all") : wanted.join(", ");
  return (
    <Menu label={label} kind={wanted.length ? "chip on" : "chip"}>
      {() => <ScopeChoices wanted={wanted} />}
    </Menu>
  );
}

function ScopeChoices({ wanted }: { wanted: readonly string[] }) {
  const found = useApi<NamespaceList>("/api/v1/namespaces", { fields: "name,gpus" });
  const names = new Set([...wanted, ...(found.data?.rows ?? []).map((row) => row.name)]);
  return (
    <fieldset class="choices">
      <legend class="muted">{t("scope.legend")}</legend>
      {[...names].sort().map((name) => (
        <label key={name}>
          <input
            type="checkbox"
            checked={wanted.includes(name)}
            onChange={(event) => setScope(toggled(wanted, name, event.currentTarget.checked))}
          />
          {name}
        </label>
      ))}
      {wanted.length > 0 && (
        <button type="button" class="item" onClick={() => setScope([])}>
          {t("scope.clear")}
        </button>
      )}
    </fieldset>
  );
}

function DataHealth() {
  const age = updated.value === null ? null : (now.value - updated.value) / 1000;
  const tone = offline.value ? "bad" : connection.value === "live" ? "good" : "warn";
  const state = offline.value
    ? t("health.offline")
    : connection.value === "live"
      ? t("health.live")
      : t("health.polling");
  return (
    <span class="health" title={state}>
      <span class={`dot ${tone}`} aria-hidden="true" />
      <span class="hide-medium">{state} · </span>
      <span class="hide-small">{age === null ? t("loading") : t("updated", { time: duration(Math.max(0, age)) })}</span>
      <span class="only-small">{age === null ? t("loading") : duration(Math.max(0, age))}</span>
    </span>
  );
}

function RefreshMenu() {
  return (
    <Menu label={t("refresh.label")} icon="refresh" kind="button quiet" hideLabel>
      {(close) => (
        <div class="choices">
          <button
            type="button"
            class="item"
            onClick={() => {
              revision.value += 1;
              close();
            }}
          >
            {t("refresh.now")}
          </button>
          {REFRESH.map((seconds) => (
            <label key={seconds}>
              <input
                type="radio"
                name="refresh"
                checked={refresh.value === seconds}
                onChange={() => {
                  refresh.value = seconds;
                }}
              />
              {seconds ? t("refresh.every", { time: duration(seconds) }) : t("refresh.off")}
            </label>
          ))}
        </div>
      )}
    </Menu>
  );
}

const THEMES = [
  ["system", "system"],
  ["light", "sun"],
  ["dark", "moon"],
] as const;

function LookMenu() {
  const icon = THEMES.find(([name]) => name === theme.value)![1];
  return (
    <Menu label={t("look.label")} icon={icon} kind="button quiet" hideLabel>
      {() => (
        <div class="choices">
          {THEMES.map(([name, sign]) => (
            <label key={name}>
              <input
                type="radio"
                name="theme"
                checked={theme.value === name}
                onChange={() => {
                  theme.value = name;
                }}
              />
              <Icon name={sign} /> {t(`theme.${name}`)}
            </label>
          ))}
          <hr />
          {(["en", "zh"] as const).map((name) => (
            <label key={name}>
              <input
                type="radio"
                name="language"
                checked={language.value === name}
                onChange={() => {
                  language.value = name;
                }}
              />
              {name === "en" ? "English" : "中文"}
            </label>
          ))}
        </div>
      )}
    </Menu>
  );
}
