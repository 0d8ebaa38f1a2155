/** How many of something are in which class: a bar with the same numbers as text. */
import { CLASSES, SIGNS } from "./classes";
import { explained, tip } from "./figures";
import { number } from "./format";
import { className } from "./heatmap";

interface Props {
  readonly figure: string; // code of the definition of the counts
  readonly counts: Readonly<Record<string, number>>;
}

export function ClassBar({ figure, counts }: Props) {
  const present = CLASSES.filter((name) => (counts[name] ?? 0) > 0);
  const total = present.reduce((sum, name) => sum + counts[name]!, 0);
  if (total === 0) return <span class="muted">–</span>;
  const text = present.map((name) => `${className(name)} ${number(counts[name])}`).join(", ");
  return (
    <span
      class="classbar"
      role="img"
      aria-label={text}
      tabIndex={0}
      {...tip([text, explained(figure)].filter(Boolean).join("\n"))}
    >
      {present.map((name) => (
        <span
          key={name}
          class={`c-${name}`}
          style={{ flexGrow: counts[name] }}
          data-figure={figure}
          data-key={name}
          data-value={counts[name]}
        >
          {present.length > 1 || total > 1 ? number(counts[name]) : SIGNS[name]}
        </span>
      ))}
    </span>
  );
}
