/** The search over everything: GPUs, pods, nodes, namespaces, owners. */
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { GpuList, NodeList, WorkloadList } from "../api/shapes";
import { scope } from "../state/scope";
import { carried, go, pathOf } from "../state/url";
import { t } from "../words";
import { shortId } from "./format";
import { Icon } from "./icon";

interface Hit {
  readonly path: string;
  readonly kind: string;
  readonly title: string;
  readonly note: string;
}

const DEBOUNCE = 200; // ms
const MOST = 6; // of each kind

export function SearchEverywhere() {
  const [typed, setTyped] = useState("");
  const [hits, setHits] = useState<Hit[] | null>(null);
  const [at, setAt] = useState(0);
  const entered = useRef(false); // Enter was pressed before the answer came
  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    type("");
    go(hit.path, carried());
  };
  const type = (text: string): void => {
    entered.current = false;
    setHits(null); // Enter must not open what was found for another text
    setTyped(text);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: only another text is searched for
  useEffect(() => {
    const text = typed.trim();
    if (text.length < 2) return;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      const found = await search(text, stop.signal);
      if (stop.signal.aborted) return;
      setHits(found);
      setAt(0);
      if (entered.current) open(found[0]);
    }, DEBOUNCE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [typed]);
  const key = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && hits === null) entered.current = true;
    if (event.key === "Enter") open(hits?.[at]);
    if (event.key === "Escape") type("");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits) {
      setAt(Math.max(0, Math.min(hits.length - 1, at + step)));
      event.preventDefault();
    }
  };
  return (
    <div class="menu">
      <label class="search">
        <Icon name="search" />
        <span class="sr">{t("search.everywhere")}</span>
        <input
          type="search"
          role="combobox"
          list=""
          aria-expanded={hits !== null}
          aria-controls="hits"
          aria-activedescendant={hits?.length ? `hit-${at}` : undefined}
          value={typed}
          placeholder={t("search.everywhere")}
          data-search="everywhere"
          onInput={(event) => type(event.currentTarget.value)}
          onKeyDown={key}
        />
      </label>
      {hits !== null && (
        <div class="panel-menu hits" id="hits" role="listbox" aria-label={t("search.everywhere")}>
          {hits.length === 0 && <p class="muted">{t("search.nothing")}</p>}
          {hits.map((hit, place) => (
            <div
              key={hit.path}
              id={`hit-${place}`}
              role="option"
              tabIndex={-1}
              aria-selected={place === at}
              class="hit"
              onMouseDown={() => open(hit)}
            >
              <span class="muted">{hit.kind}</span>
              <b>{hit.title}</b>
              <span class="muted">{hit.note}</span>
            </div>
          ))}
        </div>
      )}
    </div>
  );
}

async function search(text: string, stop: AbortSignal): Promise<Hit[]> {
  const asked = { search: text, limit: MOST, namespace: scope.value };
  const [workloads, gpus, nodes] = await Promise.allSettled([
    get<WorkloadList>("/api/v1/workloads", asked, stop),
    get<GpuList>("/api/v1/gpus", asked, stop),
    get<NodeList>("/api/v1/nodes", asked, stop),
  ]);
  return [
    ...rows(workloads).map((row) => ({
      path: pathOf("workloads", row.namespace, row.pod ?? ""),
      kind: t("kind.pod"),
      title: `${row.namespace}/${row.pod}`,
      note: row.owner ?? "",
    })),
    ...rows(gpus).map((row) => ({
      path: pathOf("gpus", row.gpu_id),
      kind: t("kind.gpu"),
      title: shortId(row.gpu_id),
      note: `${row.node ?? ""} ${row.index ?? ""}`,
    })),
    ...rows(nodes).map((row) => ({
      path: pathOf("nodes", row.name),
      kind: t("kind.node"),
      title: row.name,
      note: row.models.join(", "),
    })),
  ];
}

function rows<R>(settled: PromiseSettledResult<{ rows: R[] }>): R[] {
  return settled.status === "fulfilled" ? settled.value.rows : [];
}
