/** The objects that a row is about, as links. */
import { pathOf } from "../state/url";
import { shortId } from "./format";
import { Link } from "./pieces";

interface About {
  readonly kind?: string;
  readonly namespace: string | null;
  readonly pod: string | null;
  readonly gpu_id: string | null;
  readonly mig?: string | null;
  readonly node: string | null;
}

interface Props {
  readonly row: About;
  readonly gpu?: boolean; // false: all rows are about the same GPU
  readonly node?: boolean;
}

export function Subject({ row, gpu = true, node = true }: Props) {
  const waits = row.kind === "pending-long" || row.kind === "scheduling";
  const links = [
    row.pod && row.namespace && (
      <Link key="pod" to={pathOf(waits ? "scheduling" : "workloads", row.namespace, row.pod)}>
        {row.namespace}/{row.pod}
      </Link>
    ),
    gpu && row.gpu_id && (
      <Link key="gpu" to={pathOf("gpus", row.gpu_id)} class="mono" {...(row.mig ? { query: { mig: row.mig } } : {})}>
        {shortId(row.gpu_id)}
      </Link>
    ),
    node && row.node && (
      <Link key="node" to={pathOf("nodes", row.node)}>
        {row.node}
      </Link>
    ),
  ].filter(Boolean);
  return <span class="subject">{links}</span>;
}
