/** The frame around every page: navigation, top bar, and the page that the URL names. */
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { offline, updated } from "./api/client";
import { AuditPage } from "./pages/audit";
import { CasePage } from "./pages/cases";
import { DoctorPage } from "./pages/doctor";
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
import { TipLayer } from "./parts/figures";
import { duration } from "./parts/format";
import { Icon, type IconName } from "./parts/icon";
import { PageHead } from "./parts/pagehead";
import { Boundary, Link, Skeleton } from "./parts/pieces";
import { moveAmongRows } from "./parts/table";
import { TopBar } from "./parts/topbar";
import { PleaseLogIn, SessionEnded } from "./parts/usermenu";
import { now } from "./state/clock";
import { narrow } from "./state/preferences";
import { asked, closed, ended } from "./state/session";
import { apiRoot, base, partsOf, path } from "./state/url";
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
  { path: "idle", title: "nav.idle", icon: "idle", page: IdlePage, detail: { parts: 1, page: CasePage } },
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
  { path: "audit", title: "nav.audit", icon: "audit", page: AuditPage },
  { path: "doctor", title: "nav.doctor", icon: "doctor", page: DoctorPage },
  { path: "settings", title: "nav.settings", icon: "settings", page: SettingsPage },
];

export function App() {
  useKeys();
  const [first = "", ...names] = partsOf(path.value);
  const entry = PAGES.find((one) => one.path === first);
  const title = `${names.at(-1) ?? (entry ? t(entry.title) : t("missing.title"))} · vgpuscope`;
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <div class={narrow.value ? "frame narrow" : "frame"}>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        {t("skip")}
      </button>
      <Nav at={first} />
      <div>
        <TopBar />
        {offline.value && <Offline />}
        {ended.value && <SessionEnded />}
        <main id="main" tabIndex={-1} key={path.value} data-page={first || "overview"} data-subject={names.join("/")}>
          <Boundary>{shown(entry, names)}</Boundary>
        </main>
      </div>
      <TipLayer />
    </div>
  );
}

/** Old data stays on the page, with its age. */
function Offline() {
  const age = updated.value === null ? null : (now.value - updated.value) / 1000;
  return (
    <p class="notice bad wide" role="alert">
      <Icon name="warning" />
      {age === null ? t("offline.never") : t("offline", { time: duration(age) })}
    </p>
  );
}

/** Nothing is asked for before it is known who asks, so that no request is refused. */
function shown(entry: Entry | undefined, names: string[]) {
  if (!asked.value) return <Skeleton rows={10} />;
  return closed.value ? <PleaseLogIn /> : pageOf(entry, names);
}

function pageOf(entry: Entry | undefined, names: string[]) {
  if (entry && names.length === 0) return <entry.page />;
  if (entry?.detail && names.length === entry.detail.parts) return <entry.detail.page names={names} />;
  return (
    <>
      <PageHead title={t("missing.title")} about={t("missing.why", { path: path.value })} />
      <Link to="">{t("missing.home")}</Link>
    </>
  );
}

function Nav({ at }: { at: string }) {
  return (
    <nav class="nav" aria-label={t("nav.label")}>
      <div class="nav-in">
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
            class="to"
            aria-expanded={!narrow.value}
            title={t(narrow.value ? "nav.expand" : "nav.collapse")}
            onClick={() => {
              narrow.value = !narrow.value;
            }}
          >
            <Icon name={narrow.value ? "expand" : "collapse"} />
            <span class="label">{t(narrow.value ? "nav.expand" : "nav.collapse")}</span>
          </button>
        </div>
      </div>
    </nav>
  );
}

/** `/` goes to the search of the page, or to the search over everything; j, k and g g move among rows. */
function useKeys(): void {
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      const typing = event.target instanceof Element && event.target.matches("input, select, textarea");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      moveAmongRows(event);
      if (event.key !== "/") return;
      const field =
        document.querySelector<HTMLElement>("main [data-search]") ??
        document.querySelector<HTMLElement>("[data-search]");
      field?.focus();
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}
