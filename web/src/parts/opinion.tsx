/** What a language model says, beside the verdict of the numbers. Its texts are plain text, never markup. */
import "../style/reclaim.css";
import type { Opinion, WithOpinion } from "../api/shapes";
import { now } from "../state/clock";
import { language } from "../state/preferences";
import { named } from "../state/vocabulary";
import { t } from "../words";
import { Said } from "./figures";
import { ageOf, duration, number, percent } from "./format";
import { About, Tag } from "./pieces";

/** The opinion on something, if the analyzer asked for one. */
export const opinionOf = (of: object): Opinion | null => (of as WithOpinion<object>).opinion ?? null;

interface Props {
  readonly opinion: Opinion | null;
  readonly of?: string;
  readonly holds?: boolean; // it is a brake on the case beside it; without a case, it would be one
}

export function OpinionBox({ opinion, of, holds }: Props) {
  if (!opinion) return null;
  return (
    <section class="opinion" aria-label={`${t("opinion.title")} ${of ?? ""}`.trim()}>
      <h3>
        {t("opinion.title")}
        {of && t("join") + of} <About of={t("opinion.title")}>{t("opinion.about")}</About>
      </h3>
      <Body opinion={opinion} holds={holds ?? opinion.applied} />
    </section>
  );
}

function Body({ opinion, holds }: { opinion: Opinion; holds: boolean }) {
  if (opinion.state === "pending") return <p class="muted">{t("opinion.pending")}</p>;
  if (opinion.state === "failed" || opinion.status === null) {
    return <p class="muted">{t("opinion.failed", { code: named("error", opinion.error) })}</p>;
  }
  const age = ageOf(opinion.at, now.value);
  return (
    <>
      <div class="tags">
        <Tag tone={opinion.applied ? "warn" : "plain"}>{t(`opinion.${opinion.status}`)}</Tag>
        <span class="muted small">
          <Said
            text="opinion.confidence"
            numbers={{ share: ["tenant.opinion_confidence", percent(opinion.confidence)] }}
          />
        </span>
        <span class="muted small">
          <Said
            text="opinion.score"
            numbers={{ score: ["tenant.opinion_score", number(opinion.ai_adjusted_score, 1)] }}
          />
        </span>
        <Tag tone={holds ? "warn" : "plain"}>{t(holds ? "opinion.vetoes" : "opinion.shown")}</Tag>
      </div>
      <dl class="opinion-texts">
        <OwnWords title={t("opinion.reason")} en={opinion.reason} zh={opinion.reason_zh} />
        <OwnWords title={t("opinion.recommendation")} en={opinion.recommendation} zh={opinion.recommendation_zh} />
      </dl>
      {opinion.model && age !== null && (
        <p class="muted small">{t("opinion.source", { model: opinion.model, time: duration(age) })}</p>
      )}
    </>
  );
}

/** One text of the model in the language of the page, or in the other one if that is all it gave. */
function OwnWords({ title, en, zh }: { title: string; en: string | null; zh: string | null }) {
  const [text, lang] = zh && (language.value === "zh" || !en) ? [zh, "zh-CN"] : [en, "en"];
  if (!text) return null;
  return (
    <>
      <dt>{title}</dt>
      <dd lang={lang}>{text}</dd>
    </>
  );
}
