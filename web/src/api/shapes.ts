/** Short names of the API's types. */
import type { components } from "./types.gen";

type Schemas = components["schemas"];
export type Overview = Schemas["Overview"];
export type Figures = Schemas["Figures"];
export type AttentionRow = Schemas["AttentionRow"];
export type GpuList = Schemas["GpuList"];
export type GpuRow = Schemas["GpuRow"];
export type GpuDetail = Schemas["GpuDetail"];
export type TenantRow = Schemas["TenantRow"];
export type TenantDetail = Schemas["TenantDetail"];
export type MemoryLedger = Schemas["MemoryLedger"];
export type NodeList = Schemas["NodeList"];
export type NodeRow = Schemas["NodeRow"];
export type NodeDetail = Schemas["NodeDetail"];
export type WorkloadList = Schemas["WorkloadList"];
export type WorkloadRow = Schemas["WorkloadRow"];
export type WorkloadDetail = Schemas["WorkloadDetail"];
export type Scheduling = Schemas["Scheduling"];
export type PendingRow = Schemas["PendingRow"];
export type PendingDetail = Schemas["PendingDetail"];
export type FreeCapacity = Schemas["FreeCapacity"];
export type NamespaceList = Schemas["NamespaceList"];
export type NamespaceRow = Schemas["NamespaceRow"];
export type NamespaceDetail = Schemas["NamespaceDetail"];
export type ClassHistory = Schemas["ClassHistory"];
export type SeriesHistory = Schemas["SeriesHistory"];
export type Timeline = Schemas["Timeline"];
export type TimelineEvent = Schemas["TimelineEvent"];
export type SettingList = Schemas["SettingList"];
export type SettingRow = Schemas["SettingRow"];
export type Preview = Schemas["Preview"];
export type Part = Schemas["Part"];
export type PartList = Schemas["PartList"];
export type Vocabulary = Schemas["Vocabulary"];
export type Session = Schemas["Session"];
export type DoctorReport = Schemas["DoctorReport"];
export type DoctorFinding = Schemas["DoctorFinding"];
export type Waste = Schemas["Waste"];
export type ReclaimList = Schemas["ReclaimList"];
export type PolicyBody = Schemas["PolicyBody"];
export type AuditPage = Schemas["AuditPage"];
export type AuditEntry = Schemas["AuditEntry"];

/** What a language model says of a GPU or tenant. Its texts are not to be trusted: they are shown as plain text. */
export interface Opinion {
  readonly state: "answered" | "pending" | "failed";
  readonly status: "active" | "idle" | "suspicious" | null;
  readonly confidence: number | null;
  readonly reason: string | null;
  readonly recommendation: string | null;
  readonly ai_adjusted_score: number | null;
  readonly at: string | null;
  readonly model: string | null;
  readonly applied: boolean; // it holds reclaim back
  readonly error: string | null;
}
/** Absent where the analyzer asks no model. */
export type WithOpinion<T> = T & { readonly opinion?: Opinion | null };
export type CaseRow = WithOpinion<Schemas["CaseRow"]>;

/** A back-test: what the policy in effect, and a proposed one, would have done. */
export interface Backtest {
  readonly begin: number;
  readonly end: number;
  readonly complete: boolean;
  readonly replayed_until: number;
  readonly busy_within: number;
  readonly step: number;
  readonly coverage: {
    readonly ratio: number;
    readonly analyses: number;
    readonly gaps: readonly { readonly begin: number; readonly end: number }[];
  };
  readonly not_applied: readonly string[];
  readonly not_applied_codes: readonly string[];
  readonly changed: readonly { readonly key: string; readonly current: string; readonly proposed: string }[];
  readonly current: BacktestOutcome;
  readonly proposed: BacktestOutcome | null;
}
interface BacktestSum {
  readonly actions: number;
  readonly gpu_hours: number;
  readonly unknown_gpu_hours: number;
  readonly false_alarms: number;
}
export interface BacktestOutcome extends BacktestSum {
  readonly workloads: number;
  readonly busy_later: number;
  readonly ended: number;
  readonly still_idle: number;
  readonly held_back: Readonly<Record<string, number>>;
  readonly namespaces: readonly (BacktestSum & { readonly namespace: string })[];
  readonly series: readonly (BacktestSum & { readonly time: number })[];
  readonly list: readonly {
    readonly at: number;
    readonly until: number | null;
    readonly end: "false_alarm" | "busy_later" | "ended" | "still_idle";
    readonly namespace: string;
    readonly pod: string;
    readonly pod_uid: string;
    readonly gpu_hours: number;
  }[];
  readonly omitted: number;
}
export interface BacktestProgress {
  readonly running: boolean;
  readonly done: number; // 0-1
}
