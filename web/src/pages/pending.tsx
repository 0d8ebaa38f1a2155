/** Why one pod waits: each reason in words, the numbers behind it, and what would make it fit. */
import type { ComponentChildren } from "preact";
import { useApi } from "../api/client";
import type { PendingDetail, PendingRow, PodDecisions } from "../api/shapes";
import { hasExtender, OfPod } from "../parts/decisions";
import { Said, Value } from "../parts/figures";
import { FitOfPod } from "../parts/fit";
import { duration, number } from "../parts/format";
import { PartNotes } from "../parts/partnote";
import { Age, Command, Facts, Link, Panel, Prose, Tag } from "../parts/pieces";
import { PodPage, Sentences } from "../parts/podpage";
import { asks } from "../parts/sentences";
import { language } from "../state/preferences";
import { pathOf } from "../state/url";
import { named } from "../state/vocabulary";
import { t } from "../words";

export function PendingPage({ names }: { names: string[] }) {
  const [namespace, pod] = names as [string, string];
  const decided = useApi<PodDecisions>(`/api/v1/decisions/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`);
  const known = decided.state === "ok" && hasExtender(decided.data) ? decided.data : null;
  const explained = new Set(known?.codes.map((one) => one.code));
  return (
    <div class="stack">
      <PodPage<PendingDetail> names={names} list="scheduling" optional={known !== null && known.rows.length > 0}>
        {(data) => <Pending data={data} explained={explained} />}
      </PodPage>
      {known && (
        <OfPod data={known}>
          {known.rows[0]?.outcome === "refused" && <FitOfPod namespace={namespace} pod={pod} />}
        </OfPod>
      )}
    </div>
  );
}

/** `explained`: codes that the extender explains below, with what would make the pod fit. */
function Pending({ data, explained }: { data: PendingDetail; explained: ReadonlySet<string> }) {
  const names = { NAMESPACE: data.pod.namespace, POD: data.pod.pod };
  return (
    <div class="stack">
      <PartNotes parts={data.parts} names={["cluster"]} />
      <Panel
        title={
          <Said
            text={data.pod.outcome === "waiting" ? "pending.waits" : "pending.waited"}
            numbers={{ time: ["pod.waited", duration(data.pod.waited_seconds)] }}
          />
        }
      >
        <PendingFacts row={data.pod} />
        <Command text={`kubectl describe pod -n ${data.pod.namespace} ${data.pod.pod}`} />
      </Panel>
      {data.changes.length > 0 && explained.size === 0 && (
        <Panel title={t("pending.changes")}>
          <Sentences lines={data.changes.map((one) => one[language.value])} />
        </Panel>
      )}
      {reasonsOf(data, explained).map((one) => (
        <Panel
          key={`${one.code}${one.detail}${one.component}`}
          title={
            <>
              {one.meaning?.[language.value] ?? named("scheduling", one.code)}{" "}
              {!one.current && <Tag>{t("pending.former")}</Tag>}
            </>
          }
        >
          <Sentences lines={one.facts.map((fact) => fact[language.value])} />
          {one.advice && (
            <p>
              <Prose text={one.advice[language.value]} names={names} />
            </p>
          )}
          <Facts
            rows={[
              [
                "col.code",
                <span key="code" class="mono">
                  {one.code}
                </span>,
              ],
              ["col.stage", named("stage", one.stage)],
              ["col.scheduler", one.component],
              ["col.count", number(one.count), undefined, "pod.reason_count"],
              ["col.last", <Age key="last" at={one.last} ago />],
              ["col.nodes", nodesOf(one)],
            ]}
          />
          {one.detail && <p class="muted mono">{one.detail}</p>}
        </Panel>
      ))}
    </div>
  );
}

/** What schedulers reported, without the codes that the extender explains. */
export function reasonsOf(
  data: PendingDetail,
  explained: ReadonlySet<string>,
): readonly PendingDetail["reasons"][number][] {
  return data.reasons.filter((one) => !explained.has(one.code));
}

/** How many nodes the reason is reported for, and which. */
function nodesOf({ node_count, nodes }: PendingDetail["reasons"][number]): ComponentChildren {
  if (node_count === null) return null;
  const named = nodes.slice(0, 8).join(", ") + (nodes.length > 8 ? " …" : "");
  return (
    <>
      <Value figure="pod.reason_nodes">{number(node_count)}</Value> {named && `(${named})`}
    </>
  );
}

export function PendingFacts({ row }: { row: PendingRow }) {
  return (
    <>
      <p>
        <Tag tone={row.outcome === "scheduled" ? "good" : "warn"}>{named("outcome", row.outcome)}</Tag>{" "}
        {row.meaning?.[language.value] ?? named("scheduling", row.code)}
      </p>
      {row.fact && <p>{row.fact[language.value]}</p>}
      {row.advice && (
        <p>
          <Prose
            text={row.advice[language.value]}
            names={{ NAMESPACE: row.namespace, POD: row.pod, NODE: row.node ?? "NODE" }}
          />
        </p>
      )}
      <Facts
        rows={[
          ["col.asks", asks(row)],
          ["col.scheduler", row.scheduler],
          ["col.attempts", number(row.attempts), undefined, "pod.attempts"],
          ["col.owner", row.owner],
          ["col.created", <Age key="created" at={row.created} ago />],
          [
            "col.node",
            row.node ? (
              <Link key="node" to={pathOf("nodes", row.node)}>
                {row.node}
              </Link>
            ) : null,
          ],
        ]}
      />
    </>
  );
}
