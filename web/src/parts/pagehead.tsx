/** The title of a page, the question that it answers, and the way back. */
import type { ComponentChildren } from "preact";
import { type Key, t } from "../words";
import { Link } from "./pieces";

interface Props {
  readonly title: ComponentChildren;
  readonly about?: ComponentChildren;
  readonly back?: readonly [string, Key];
  readonly children?: ComponentChildren; // actions
}

export function PageHead({ title, about, back, children }: Props) {
  return (
    <div class="page-head">
      <div class="grow">
        {back && (
          <p class="crumbs">
            <Link to={back[0]}>{t(back[1])}</Link> ›
          </p>
        )}
        <h1>{title}</h1>
        {about && <p class="sub">{about}</p>}
      </div>
      {children}
    </div>
  );
}
