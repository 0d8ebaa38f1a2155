/** The settings in effect and where they come from; thresholds and weights can be tried and changed here. */
import { useState } from "preact/hooks";
import { ApiError, revision, send, useApi } from "../api/client";
import type { Preview, SettingList, SettingRow } from "../api/shapes";
import { Said } from "../parts/figures";
import { number, shortId } from "../parts/format";
import { Icon } from "../parts/icon";
import { PageHead } from "../parts/pagehead";
import { ClassBadge, Dialog, Empty, errorText, Fold, Link, Panel, Scroll, Shown, Tag } from "../parts/pieces";
import { LogIn } from "../parts/usermenu";
import { language } from "../state/preferences";
import { may, restricted, session } from "../state/session";
import { base, pathOf } from "../state/url";
import { t, word } from "../words";
import { DEFAULTS_ZH, SETTINGS_ZH } from "../words/settings.zh";
import { ScoreOf } from "./gpu";

const TRIED = new Set(["scoring", "thresholds", "verdict"]);

export function SettingsPage() {
  const found = useApi<SettingList>(restricted.value ? null : "/api/v1/settings");
  return (
    <>
      <PageHead title={t("nav.settings")} about={t("settings.about")}>
        {may("operate") && !restricted.value && <AnalyzeNow />}
      </PageHead>
      {restricted.value ? (
        <Empty title={t("settings.restricted")} why={t("settings.restricted_why")} />
      ) : (
        <Shown of={found} rows={14}>
          {(data) => <All data={data} />}
        </Shown>
      )}
      <p class="muted small">
        <a href={`${base}licences.txt`}>{t("settings.licences")}</a>
      </p>
    </>
  );
}

function AnalyzeNow() {
  const [told, setTold] = useState<string | null>(null);
  const [asking, setAsking] = useState(false);
  const start = async (): Promise<void> => {
    setAsking(false);
    try {
      await send("POST", "/analyze");
      setTold(t("settings.told"));
    } catch (error) {
      setTold(error instanceof ApiError ? errorText(error) : String(error));
    }
  };
  return (
    <>
      {told && (
        <span class="muted" role="status">
          {told}
        </span>
      )}
      <button type="button" class="button" onClick={() => setAsking(true)}>
        {t("settings.analyze")}
      </button>
      {asking && (
        <Dialog title={t("settings.analyze")} close={() => setAsking(false)}>
          <p>{t("settings.analyze_about")}</p>
          <div class="form">
            <div class="row">
              <button type="button" class="button" onClick={() => setAsking(false)}>
                {t("cancel")}
              </button>
              <button type="button" class="button primary" onClick={() => void start()}>
                {t("settings.analyze")}
              </button>
            </div>
          </div>
        </Dialog>
      )}
    </>
  );
}

function All({ data }: { data: SettingList }) {
  const [changes, setChanges] = useState<Record<string, string>>({});
  const [typed, setTyped] = useState("");
  const rows = data.rows.filter((row) =>
    `${row.path} ${describe(row)}`.toLowerCase().includes(typed.trim().toLowerCase()),
  );
  const sections = [...new Set(rows.map((row) => row.section))];
  const changed = data.rows.filter((row) => row.path in changes && changes[row.path] !== String(row.value ?? ""));
  const set = (path: string, value: string): void => setChanges({ ...changes, [path]: value });
  return (
    <div class="stack">
      {!may("operate") && (
        <p class="notice">{t(session.value?.can_log_in ? "settings.log_in" : "settings.read_only")}</p>
      )}
      <div>
        <label class="search">
          <Icon name="search" />
          <span class="sr">{t("settings.search")}</span>
          <input
            type="search"
            data-search
            value={typed}
            placeholder={t("settings.search")}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
          <kbd aria-hidden="true">/</kbd>
        </label>
      </div>
      {changed.length > 0 && <Change rows={changed} changes={changes} done={() => setChanges({})} />}
      {sections.length === 0 && <Empty title={t("settings.none")} />}
      {sections.map((section) => (
        <Section
          key={section}
          name={section}
          rows={rows.filter((row) => row.section === section)}
          changes={changes}
          set={set}
          searched={typed.trim() !== ""}
        />
      ))}
    </div>
  );
}

/** What a setting is for; the API has the texts in English. */
export function describe(row: Pick<SettingRow, "path" | "description">): string {
  return language.value === "zh" ? (SETTINGS_ZH[row.path] ?? row.description) : row.description;
}

interface SectionProps {
  readonly name: string;
  readonly rows: readonly SettingRow[];
  readonly changes: Readonly<Record<string, string>>;
  readonly set: (path: string, value: string) => void;
  readonly searched: boolean;
}

/** What was set, can be changed here, or was searched for; the rest is as released, and closed. */
function Section({ name, rows, changes, set, searched }: SectionProps) {
  const editable = (row: SettingRow): boolean => row.editable && TRIED.has(name) && may("operate");
  const shown = rows.filter((row) => searched || row.source !== "default" || editable(row));
  const defaults = rows.filter((row) => !shown.includes(row));
  const table = (some: readonly SettingRow[]) => (
    <Scroll all>
      <table class="setting-table">
        <thead>
          <tr>
            <th scope="col">{t("col.setting")}</th>
            <th scope="col">{t("col.value")}</th>
            <th scope="col">{t("col.default")}</th>
            <th scope="col">{t("col.from")}</th>
          </tr>
        </thead>
        <tbody>
          {some.map((row) => (
            <tr key={row.path}>
              <th scope="row">
                <span class="mono">{row.path.replace(`${name}.`, "")}</span>
                <span class="description">{describe(row)}</span>
              </th>
              <td>
                {editable(row) ? (
                  <Field row={row} value={changes[row.path]} set={(value) => set(row.path, value)} />
                ) : (
                  <Value row={row} />
                )}
              </td>
              <td class="muted">
                {language.value === "zh" ? (DEFAULTS_ZH[row.default_text] ?? row.default_text) : row.default_text}
              </td>
              <td>
                <Tag title={row.source_name ?? ""}>{t(`setting_source.${row.source}`)}</Tag>{" "}
                {row.needs_restart && <Tag>{t("settings.restart")}</Tag>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
  return (
    <Panel title={word(`section.${name}`, name)} note={<span class="mono">{name}</span>}>
      {shown.length > 0 && table(shown)}
      {defaults.length > 0 && <Fold title={t("settings.defaults", { n: defaults.length })}>{table(defaults)}</Fold>}
    </Panel>
  );
}

function Value({ row }: { row: SettingRow }) {
  if (row.secret) return <span class="muted">{t(row.is_set ? "settings.secret_set" : "settings.secret_unset")}</span>;
  const value = row.value as unknown;
  return (
    <span class="mono">
      {value === null || value === undefined || (Array.isArray(value) && value.length === 0)
        ? "–"
        : Array.isArray(value)
          ? value.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(", ")
          : typeof value === "object"
            ? JSON.stringify(value)
            : String(value)}
    </span>
  );
}

function Field({ row, value, set }: { row: SettingRow; value: string | undefined; set: (value: string) => void }) {
  return (
    <input
      type="number"
      step="any"
      aria-label={row.path}
      {...(row.minimum === null ? {} : { min: row.minimum })}
      {...(row.maximum === null ? {} : { max: row.maximum })}
      value={value ?? String(row.value ?? "")}
      onInput={(event) => set(event.currentTarget.value)}
    />
  );
}

/** Tries changes on the data of this moment, then asks once more before they take effect. */
function Change({
  rows,
  changes,
  done,
}: {
  rows: readonly SettingRow[];
  changes: Record<string, string>;
  done: () => void;
}) {
  const [preview, setPreview] = useState<Preview | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [asking, setAsking] = useState(false);
  const [logIn, setLogIn] = useState(false);
  const body = sections(rows, changes);
  const attempt = async (what: () => Promise<void>): Promise<void> => {
    try {
      setError(null);
      await what();
    } catch (failure) {
      const known = failure instanceof ApiError ? failure : new ApiError("CONSOLE", String(failure));
      if (known.status === 401) setLogIn(true);
      setError(known);
    }
  };
  const loggedIn = (): void => {
    setLogIn(false);
    setError(null);
  };
  const names = rows.map((row) => `${row.path} = ${changes[row.path]}`);
  return (
    <Panel
      title={t("settings.changed", { n: rows.length })}
      actions={
        <>
          <button type="button" class="button" onClick={done}>
            {t("settings.undo")}
          </button>
          <button
            type="button"
            class="button"
            onClick={() =>
              void attempt(async () => setPreview(await send<Preview>("POST", "/api/v1/settings/preview", body)))
            }
          >
            {t("settings.preview")}
          </button>
          {may("admin") && (
            <button type="button" class="button primary" onClick={() => setAsking(true)}>
              {t("settings.apply")}
            </button>
          )}
        </>
      }
    >
      <ul class="sentences mono">
        {names.map((name) => (
          <li key={name}>{name}</li>
        ))}
      </ul>
      {error && (
        <p class="notice bad" role="alert">
          {errorText(error)} {language.value === "en" && error.hint}
        </p>
      )}
      {preview && <PreviewTable preview={preview} />}
      {logIn && <LogIn close={loggedIn} />}
      {asking && (
        <Dialog title={t("settings.apply")} close={() => setAsking(false)}>
          <p>{t("settings.confirm")}</p>
          <ul class="sentences mono">
            {names.map((name) => (
              <li key={name}>{name}</li>
            ))}
          </ul>
          <div class="form">
            <div class="row">
              <button type="button" class="button" onClick={() => setAsking(false)}>
                {t("cancel")}
              </button>
              <button
                type="button"
                class="button primary"
                onClick={() =>
                  void attempt(async () => {
                    setAsking(false);
                    await send("POST", "/config/update", body);
                    done();
                    revision.value += 1;
                  })
                }
              >
                {t("settings.apply")}
              </button>
            </div>
          </div>
        </Dialog>
      )}
    </Panel>
  );
}

function sections(
  rows: readonly SettingRow[],
  changes: Record<string, string>,
): Record<string, Record<string, number>> {
  const body: Record<string, Record<string, number>> = {};
  for (const row of rows) {
    const section = row.path.split(".")[0]!;
    body[section] = { ...body[section], [row.path.slice(section.length + 1)]: Number(changes[row.path]) };
  }
  return body;
}

function PreviewTable({ preview }: { preview: Preview }) {
  return (
    <>
      <p>
        <Said
          text="settings.preview_result"
          numbers={{
            gpus: ["preview.gpus_changed", number(preview.gpus_changed)],
            all: ["preview.gpus", number(preview.gpus)],
            tenants: ["preview.tenants_changed", number(preview.tenants_changed)],
            all_tenants: ["preview.tenants", number(preview.tenants)],
          }}
        />
      </p>
      {preview.rows.length > 0 && (
        <Scroll>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("col.who")}</th>
                <th scope="col">{t("settings.before")}</th>
                <th scope="col">{t("settings.after")}</th>
              </tr>
            </thead>
            <tbody>
              {preview.rows.map((row) => (
                <tr
                  key={`${row.gpu_id}${row.mig}${row.pod}${row.container}`}
                  data-key={[row.gpu_id, row.mig, row.namespace, row.pod, row.container].join("/")}
                >
                  <th scope="row">
                    {row.namespace && row.pod ? (
                      <Link to={pathOf("workloads", row.namespace, row.pod)}>
                        {row.namespace}/{row.pod}
                      </Link>
                    ) : (
                      <Link to={pathOf("gpus", row.gpu_id)}>{shortId(row.gpu_id)}</Link>
                    )}
                  </th>
                  <td>
                    <Judged of={row.before} />
                  </td>
                  <td>
                    <Judged of={row.after} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

function Judged({ of }: { of: Preview["rows"][number]["before"] }) {
  if (of === null) return <span class="muted">{t("settings.not_counted")}</span>;
  return (
    <>
      <ClassBadge name={of.use_class} /> <ScoreOf of={of} figure="judged.score" />
    </>
  );
}
