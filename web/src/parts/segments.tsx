/** A few options of which one is chosen. */
interface Props<T extends string> {
  readonly label: string;
  readonly options: readonly T[];
  readonly at: T;
  readonly names: (one: T) => string;
  readonly choose: (one: T) => void;
}

export function Segments<T extends string>({ label, options, at, names, choose }: Props<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((one) => (
        <button key={one} type="button" aria-pressed={one === at} onClick={() => choose(one)}>
          {names(one)}
        </button>
      ))}
    </div>
  );
}

/** The option that a query asks for, if it is one. */
export function pick<T extends string>(allowed: readonly T[], asked: string | null, otherwise: T): T {
  return allowed.includes(asked as T) ? (asked as T) : otherwise;
}
