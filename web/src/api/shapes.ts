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
export type PodBeside = Schemas["PodBeside"];
export type NodeBeside = Schemas["NodeBeside"];
export type HostRow = Schemas["HostRow"];
export type FigureRow = Schemas["FigureRow"];
export type Scheduling = Schemas["Scheduling"];
export type PendingRow = Schemas["PendingRow"];
export type PendingDetail = Schemas["PendingDetail"];
export type DecisionList = Schemas["DecisionList"];
export type DecisionRow = Schemas["DecisionRow"];
export type PodDecisions = Schemas["PodDecisions"];
export type CodeRow = Schemas["CodeRow"];
export type FitAnswer = Schemas["FitAnswer"];
export type WhatIf = Schemas["WhatIf"];
export type AskedGpus = Schemas["AskedGpus"];
export type CountedCapacity = Schemas["CountedCapacity"];
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
export type Definitions = Schemas["Definitions"];
export type Session = Schemas["Session"];
export type DoctorReport = Schemas["DoctorReport"];
export type DoctorFinding = Schemas["DoctorFinding"];
export type Waste = Schemas["Waste"];
export type ReclaimList = Schemas["ReclaimList"];
export type PolicyBody = Schemas["PolicyBody"];
export type NoticesBody = Schemas["NoticesBody"];
export type AuditPage = Schemas["AuditPage"];
export type AuditEntry = Schemas["AuditEntry"];

/** What a language model says of a GPU or tenant. Its texts are not to be trusted: they are shown as plain text. */
export type Opinion = Schemas["OpinionRow"];
/** Absent where the analyzer asks no model. */
export type WithOpinion<T> = T & { readonly opinion?: Opinion | null };
export type CaseRow = WithOpinion<Schemas["CaseRow"]>;

/** A back-test: what the policy in effect, and a proposed one, would have done. */
export type Backtest = Schemas["Backtest"];
export type BacktestOutcome = Schemas["Outcome"];
export type BacktestProgress = Schemas["BacktestProgress"];
