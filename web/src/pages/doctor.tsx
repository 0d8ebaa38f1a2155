/** Can these numbers be trusted? The chain of checks, from the driver to the history, with cause and fix. */
import "../style/doctor.css";
import { useState } from "preact/hooks";
import { useApi } from "../api/client";
import type { AskedService, DoctorFinding, DoctorReport, DoctorStage } from "../api/shapes";
import { Said } from "../parts/figures";
import { number } from "../parts/format";
import { PageHead } from "../parts/pagehead";
import { Command, Fold, Panel, Prose, Scroll, Shown, Tag } from "../parts/pieces";
import { language } from "../state/preferences";
import { type Key, t } from "../words";

type Status = DoctorFinding["status"];
type Both = DoctorFinding["title"];

const TONES = { pass: "good", warn: "warn", fail: "bad", skipped: "plain" } as const;
const STAGE_TONES = { ...TONES, partial: "plain" } as const;
const ORDER: readonly Status[] = ["fail", "warn", "pass", "skipped"];

export function DoctorPage() {
  const found = useApi<DoctorReport>("/api/v1/doctor");
  return (
    <>
      <PageHead title={t("nav.doctor")} about={t("doctor.about")} />
      <Shown of={found} rows={12}>
        {(data) => <Report data={data} />}
      </Shown>
    </>
  );
}

function Report({ data }: { data: DoctorReport }) {
  const bad = data.findings.filter((one) => one.status === "fail" || one.status === "warn");
  return (
    <div class="stack">
      <p role="status">
        {ORDER.map((status) => (
          <span key={status}>
            <Tag tone={TONES[status]}>
              <Count of={data.counts} status={status} name={status} />
            </Tag>{" "}
          </span>
        ))}
      </p>
      <ol class="doctor-chain" aria-label={t("doctor.chain")}>
        {data.stages.map((stage) => (
          <Link key={stage.stage} stage={stage} />
        ))}
      </ol>
      <Services rows={data.services} />
      {bad.length === 0 && <p class="notice">{t("doctor.nothing")}</p>}
      {data.stages.map((stage) => {
        const here = bad.filter((one) => one.stage === stage.stage);
        return here.length === 0 ? null : (
          <Panel key={stage.stage} title={said(stage.name)}>
            {here.map((one) => (
              <Found key={one.code} finding={one} />
            ))}
          </Panel>
        );
      })}
      <Quiet name="checks-passed" title={t("doctor.passed")} findings={withStatus(data, "pass")} />
      <Quiet name="checks-skipped" title={t("doctor.skipped")} findings={withStatus(data, "skipped")} />
      <Panel title={t("doctor.elsewhere")}>
        <p class="muted">{t("doctor.elsewhere_why")}</p>
        <Command text="vgpuscope doctor --all" />
        <Command text="vgpuscope doctor --bundle report.tar.gz" />
      </Panel>
    </div>
  );
}

const withStatus = (data: DoctorReport, status: Status): DoctorFinding[] =>
  data.findings.filter((one) => one.status === status);

/** "2 failed": how many checks ended so. */
function Count({ of, status, name }: { of: DoctorReport["counts"]; status: Status; name: string }) {
  const text = `doctor.count.${status}` as Key;
  return <Said text={text} numbers={{ n: ["service.checks", number(of[status] ?? 0), name] }} />;
}

/** One link of the chain: how many of its checks passed, and how many could not be made, with the reasons. */
function Link({ stage }: { stage: DoctorStage }) {
  const counted = ORDER.filter((status) => (stage.counts[status] ?? 0) > 0);
  const all = ORDER.reduce((sum, status) => sum + (stage.counts[status] ?? 0), 0);
  const why = stage.not_checked.map((one) => `${said(one.why)} (${number(one.checks)})`).join("\n");
  return (
    <li title={why || undefined}>
      <span>{said(stage.name)}</span>
      <Tag tone={STAGE_TONES[stage.status]}>
        {stage.status === "partial" ? (
          <Said
            text="doctor.partial"
            numbers={{ made: ["service.checks", number(stage.counts.pass ?? 0), `${stage.stage}/pass`] }}
            values={{ all: number(all) }}
          />
        ) : (
          <span>
            {counted.map((status, at) => (
              <span key={status}>
                {at > 0 && t("comma")}
                <Count of={stage.counts} status={status} name={`${stage.stage}/${status}`} />
              </span>
            ))}
          </span>
        )}
      </Tag>
      {(stage.status === "partial" || stage.status === "skipped") && stage.not_checked[0] && (
        <span class="muted small">{said(stage.not_checked[0].why)}</span>
      )}
    </li>
  );
}

/** Which services were asked, how their addresses were found, and which of them answered. */
function Services({ rows }: { rows: readonly AskedService[] }) {
  const [all, setAll] = useState(false);
  const first = rows.filter((row, at) => row.state !== "answered" || rows.findIndex(sameAs(row)) + MOST_SHOWN > at);
  const shown = all ? rows : first;
  return (
    <Panel title={t("doctor.services")} note={t("doctor.services_note")}>
      <Scroll all>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("doctor.service")}</th>
              <th scope="col">{t("doctor.state")}</th>
              <th scope="col">{t("doctor.address")}</th>
              <th scope="col">{t("doctor.found_by")}</th>
              <th scope="col">{t("doctor.detail")}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={`${row.service} ${row.name} ${row.url}`}>
                <th scope="row">
                  {t(`doctor.service.${row.service}` as Key)} {row.name}
                </th>
                <td>
                  <Tag tone={stateTone(row.state)}>{t(`doctor.service_state.${row.state}` as Key)}</Tag>
                </td>
                <td>{row.url ? <code class="small">{row.url}</code> : "–"}</td>
                <td>{row.found_by === "none" ? "–" : t(`doctor.by.${row.found_by}` as Key)}</td>
                <td>{row.detail || "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {shown.length < rows.length && (
        <button type="button" class="button" onClick={() => setAll(true)}>
          {t("doctor.more_services", { n: number(rows.length - shown.length) })}
        </button>
      )}
    </Panel>
  );
}

const MOST_SHOWN = 8; // services of one kind that answered; all others are shown

function sameAs(row: AskedService): (other: AskedService) => boolean {
  return (other) => other.service === row.service;
}

function stateTone(state: AskedService["state"]): "good" | "bad" | "plain" {
  if (state === "answered") return "good";
  return state === "not-configured" || state === "not-asked" ? "plain" : "bad";
}

function Found({ finding }: { finding: DoctorFinding }) {
  return (
    <article class="doctor-finding">
      <h3>
        <State status={finding.status} />
        <code>{finding.code}</code>
      </h3>
      <dl>
        <dt>{t("doctor.check")}</dt>
        <dd>{said(finding.title)}</dd>
        {finding.cause && (
          <>
            <dt>{t("doctor.cause")}</dt>
            <dd>
              <Prose text={said(finding.cause)} />
            </dd>
          </>
        )}
        {finding.examples.length > 0 && (
          <>
            <dt>{t("doctor.examples")}</dt>
            <dd>
              <ul class="mono">
                {finding.examples.map((one) => (
                  <li key={one}>{one}</li>
                ))}
                {finding.numbers.omitted && (
                  <li class="muted">{t("doctor.omitted", { n: finding.numbers.omitted })}</li>
                )}
              </ul>
            </dd>
          </>
        )}
        {finding.fix && (
          <>
            <dt>{t("doctor.fix")}</dt>
            <dd>
              <Prose text={said(finding.fix)} />
            </dd>
          </>
        )}
      </dl>
      {finding.commands.map((one) => (
        <Command key={one} text={one} />
      ))}
    </article>
  );
}

interface QuietProps {
  readonly name: string; // of the table
  readonly title: string;
  readonly findings: readonly DoctorFinding[];
}

/** What needs nobody, closed: what passed, and what could not be looked at, are never mistaken for each other. */
function Quiet({ name, title, findings }: QuietProps) {
  if (findings.length === 0) return null;
  return (
    <section class="panel">
      <Fold
        title={<h2>{title}</h2>}
        note={<Said text="doctor.quiet_note" numbers={{ n: ["list.rows", findings.length] }} />}
      >
        <Scroll all name={name} rows={findings.length}>
          <table class="sentence-table">
            <thead>
              <tr>
                <th scope="col">{t("doctor.state")}</th>
                <th scope="col">{t("doctor.check")}</th>
                <th scope="col">{t("doctor.code")}</th>
                <th scope="col">{t("doctor.why")}</th>
              </tr>
            </thead>
            <tbody>
              {findings.map((one) => (
                <tr key={one.code}>
                  <td>
                    <State status={one.status} />
                  </td>
                  <th scope="row">{said(one.title)}</th>
                  <td>
                    <code class="small">{one.code}</code>
                  </td>
                  <td>{one.cause ? said(one.cause) : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </Fold>
    </section>
  );
}

function State({ status }: { status: Status }) {
  return <Tag tone={TONES[status]}>{t(`doctor.status.${status}` as Key)}</Tag>;
}

function said(words: Both): string {
  return language.value === "zh" ? words.zh : words.en;
}
