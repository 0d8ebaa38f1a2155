/** The page of one pod: its name, its namespace, and what an operation of the API says of it. */
import type { ComponentChildren } from "preact";
import { useApi } from "../api/client";
import { language } from "../state/preferences";
import { pathOf } from "../state/url";
import { t } from "../words";
import { PageHead } from "./pagehead";
import { Copy, Link, Shown } from "./pieces";

interface Props<T> {
  readonly names: readonly string[];
  readonly list: "workloads" | "scheduling"; // where it is listed: the path of the API and of the console
  readonly optional?: boolean; // the page has more to show, if this list does not know the pod
  readonly past?: ComponentChildren; // what is known of a pod that ended
  readonly children: (data: T) => ComponentChildren;
}

export function PodPage<T>({ names, list, optional = false, past, children }: Props<T>) {
  const [namespace, pod] = names as [string, string];
  const found = useApi<T>(`/api/v1/${list}/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`, {
    lang: language.value,
  });
  return (
    <>
      <PageHead
        title={
          <>
            {pod} <Copy text={pod} />
          </>
        }
        about={
          <>
            {t("col.namespace")} <Link to={pathOf("namespaces", namespace)}>{namespace}</Link>
          </>
        }
        back={[list, `nav.${list}`]}
      />
      {!(optional && found.state === "failed" && found.error.status === 404) && (
        <Shown of={found} rows={12}>
          {children}
        </Shown>
      )}
      {found.state === "failed" && found.error.code === "OBJECT_UNKNOWN" && past}
    </>
  );
}

/** Sentences, one below the other. */
export function Sentences({ lines }: { lines: readonly string[] }) {
  if (lines.length === 0) return null;
  return (
    <ul class="sentences">
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}
