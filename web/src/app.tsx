/** The frame around every page: navigation, top bar, and the page that the URL names. */
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { offline, revision, updated, useApi } from "./api/client";
import { connection } from "./api/live";
import type { NamespaceList } from "./api/shapes";
import { EventsPage } from "./pages/events";
import { GpuPage } from "./pages/gpu";
import { GpusPage } from "./pages/gpus";
import { IdlePage } from "./pages/idle";
import { NamespacePage } from "./pages/namespace";
import { NamespacesPage } from "./pages/namespaces";
import { NodePage } from "./pages/node";
import { NodesPage } from "./pages/nodes";
import { OverviewPage } from "./pages/overview";
import { PendingPage } from "./pages/pending";
import { SchedulingPage } from "./pages/scheduling";
import { SettingsPage } from "./pages/settings";
import { WorkloadPage } from "./pages/workload";
import { WorkloadsPage } from "./pages/workloads";
import { duration } from "./parts/format";
import { Icon, type IconName } from "./parts/icon";
import { Menu } from "./parts/menu";
import { Empty, Link } from "./parts/pieces";
import { SearchEverywhere } from "./parts/searcheverywhere";
import { UserMenu } from "./parts/usermenu";
import { now } from "./state/clock";
import { language, narrow, REFRESH, refresh, theme } from "./state/preferences";
import { RANGES, range, scope, setRange, setScope } from "./state/scope";
import { apiRoot, base, partsOf, place } from "./state/url";
import { type Key, t } from "./words";

interface Entry {
  readonly path: string;
  readonly title: Key;
  readonly icon: IconName;
  readonly page: FunctionComponent;
  readonly detail?: { readonly parts: number; readonly page: FunctionComponent<{ names: string[] }> };
}

/** Every page of the console. */
const PAGES: readonly Entry[] = [
  { path: "", title: "nav.overview", icon: "overview", page: OverviewPage },
  { path: "gpus", title: "nav.gpus", icon: "gpu", page: GpusPage, detail: { parts: 1, page: GpuPage } },
  { path: "nodes", title: "nav.nodes", icon: "node", page: NodesPage, detail: { parts: 1, page: NodePage } },
  {
    path: "workloads",
    title: "nav.workloads",
    icon: "workload",
    page: WorkloadsPage,
    detail: { parts: 2, page: WorkloadPage },
  },
  { path: "idle", title: "nav.idle", icon: "idle", page: IdlePage },
  {
    path: "scheduling",
    title: "nav.scheduling",
    icon: "scheduling",
    page: SchedulingPage,
    detail: { parts: 2, page: PendingPage },
  },
  {
    path: "namespaces",
    title: "nav.namespaces",
    icon: "namespace",
    page: NamespacesPage,
    detail: { parts: 1, page: NamespacePage },
  },
  { path: "events", title: "nav.events", icon: "events", page: EventsPage },
  { path: "settings", title: "nav.settings", icon: "settings", page: SettingsPage },
];

export function App() {
  useKeys();
  const [first = "", ...names] = partsOf(place.value.path);
  const entry = PAGES.find((one) => one.path === first);
  useEffect(() => {
    document.title = `${names.at(-1) ?? (entry ? t(entry.title) : t("missing.title"))} · vgpuscope`;
  }, [entry, names.at(-1), language.value]);
  return (
    <div class={narrow.value ? "frame narrow" : "frame"}>
      <a class="skip" href="#main" onClick={() => document.getElementById("main")?.focus()}>
        {t("skip")}
      </a>
      <Nav at={first} />
      <div>
        <TopBar />
        {offline.value && (
          <p class="notice bad" role="alert">
            <Icon name="warning" /> {t("offline")}
          </p>
        )}
        <main id="main" tabIndex={-1} key={place.value.path}>
          {pageOf(entry, names)}
        </main>
      </div>
    </div>
  );
}

function pageOf(entry: Entry | undefined, names: string[]) {
  if (entry && names.length === 0) return <entry.page />;
  if (entry?.detail && names.length === entry.detail.parts) return <entry.detail.page names={names} />;
  return (
    <Empty title={t("missing.title")} why={t("missing.why", { path: place.value.path })}>
      <Link to="">{t("missing.home")}</Link>
    </Empty>
  );
}

function Nav({ at }: { at: string }) {
  return (
    <nav class="nav" aria-label={t("nav.label")}>
      <Link to="" class="brand" title="vgpuscope">
        <img src={`${base}icon.svg`} alt="" />
        <span>vgpuscope</span>
      </Link>
      {PAGES.map((entry) => (
        <Link
          key={entry.path}
          to={entry.path}
          class="to"
          title={t(entry.title)}
          aria-current={entry.path === at ? "page" : undefined}
        >
          <Icon name={entry.icon} />
          <span class="label">{t(entry.title)}</span>
        </Link>
      ))}
      <div class="foot">
        <a class="to" href={`${apiRoot}docs`} title={t("nav.docs")}>
          <Icon name="docs" />
          <span class="label">{t("nav.docs")}</span>
        </a>
        <button
          type="button"
          class="button quiet"
          aria-pressed={narrow.value}
          aria-label={t("nav.collapse")}
          title={t("nav.collapse")}
          onClick={() => {
            narrow.value = !narrow.value;
          }}
        >
          <Icon name="menu" />
        </button>
      </div>
    </nav>
  );
}

// ── top bar ───────────────────────────────────────────────────────────────────────────────────────────────────────

function TopBar() {
  return (
    <header class="top">
      <SearchEverywhere />
      <ScopePicker />
      <span class="grow" />
      <DataHealth />
      <div class="segments hide-small" role="group" aria-label={t("range.label")}>
        {RANGES.map((one) => (
          <button key={one} type="button" aria-pressed={range.value === one} onClick={() => setRange(one)}>
            {one}
          </button>
        ))}
      </div>
      <RefreshMenu />
      <LookMenu />
      <UserMenu />
    </header>
  );
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
            onChange={(event) =>
              setScope(event.currentTarget.checked ? [...wanted, name] : wanted.filter((one) => one !== name))
            }
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
      <span class="hide-small">{state} · </span>
      {age === null ? t("loading") : t("updated", { time: duration(Math.max(0, age)) })}
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

/** `/` goes to the search of the page, or to the search over everything. */
function useKeys(): void {
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      const typing =
        event.target instanceof HTMLInputElement ||
        event.target instanceof HTMLSelectElement ||
        event.target instanceof HTMLTextAreaElement;
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      document.querySelector<HTMLInputElement>("[data-search]")?.focus();
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}
