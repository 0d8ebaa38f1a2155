/** Who is logged in; logging in and out. */
import { useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { language } from "../state/preferences";
import { ended, logIn, logOut, session } from "../state/session";
import { t, word } from "../words";
import { momentWithZone } from "./format";
import { Icon } from "./icon";
import { Menu } from "./menu";
import { PageHead } from "./pagehead";
import { Dialog, errorText } from "./pieces";

export function UserMenu() {
  const who = session.value;
  if (!who) return null;
  if (who.user === null) {
    return who.can_log_in && !ended.value ? <LogInButton kind="button" /> : null;
  }
  return (
    <Menu label={word(`actor.${who.user}`, who.user)} icon="user" kind="button quiet user">
      {() => (
        <div class="choices">
          <p class="muted">{t(`role.${who.role ?? "none"}`)}</p>
          {who.namespaces && <p class="muted">{t("session.namespaces", { names: who.namespaces.join(", ") })}</p>}
          {who.expires && <p class="muted">{t("session.until", { time: momentWithZone(who.expires) })}</p>}
          {who.expires !== null && (
            <button type="button" class="item" onClick={() => void logOut()}>
              {t("session.log_out")}
            </button>
          )}
        </div>
      )}
    </Menu>
  );
}

function LogInButton({ kind }: { kind: string }) {
  const [asking, setAsking] = useState(false);
  return (
    <>
      <button type="button" class={kind} onClick={() => setAsking(true)}>
        {t("session.log_in")}
      </button>
      {asking && <LogIn close={() => setAsking(false)} />}
    </>
  );
}

/** Above the page, which keeps what was typed. */
export function SessionEnded() {
  return (
    <div class="notice warn wide" role="alert">
      <Icon name="warning" />
      <span>{t(session.value?.can_log_in ? "session.ended" : "session.ended_proxy")}</span>
      {session.value?.can_log_in && <LogInButton kind="button primary" />}
    </div>
  );
}

/** Asks for a token or for name and password, once. What was typed stays when they are wrong. */
export function LogIn({ close }: { close: () => void }) {
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const ways = session.value?.ways ?? [];
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn(user ? { user, password: secret } : { token: secret });
      close();
    } catch (failure) {
      setError(failure instanceof ApiError ? failure : new ApiError("CONSOLE", String(failure)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={t("session.log_in")} close={close}>
      <form class="form" onSubmit={submit}>
        {ways.includes("password") && (
          <label>
            {ways.includes("token") ? t("session.user_or_none") : t("session.user")}
            <input
              type="text"
              autocomplete="username"
              value={user}
              onInput={(event) => setUser(event.currentTarget.value)}
            />
          </label>
        )}
        <label>
          {user ? t("session.password") : ways.includes("token") ? t("session.token") : t("session.password")}
          <input
            type="password"
            autocomplete="current-password"
            required
            value={secret}
            onInput={(event) => setSecret(event.currentTarget.value)}
          />
        </label>
        {error && (
          <p class="notice bad" role="alert">
            {errorText(error)} {language.value === "en" && error.hint}
          </p>
        )}
        <p class="muted">{t("session.about")}</p>
        <div class="row">
          <button type="button" class="button" onClick={close}>
            {t("cancel")}
          </button>
          <button type="submit" class="button primary" disabled={busy}>
            {t("session.log_in")}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** In place of a page, where even reading needs a log-in. */
export function PleaseLogIn() {
  const can = session.value?.can_log_in;
  return (
    <>
      <PageHead title={t("session.closed")} about={t(can ? "session.closed_why" : "session.closed_proxy")} />
      {can && (
        <p>
          <LogInButton kind="button primary" />
        </p>
      )}
    </>
  );
}
