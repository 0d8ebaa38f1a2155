/** A button that opens a small panel; Escape or a click elsewhere closes it. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icon";

interface Props {
  readonly label: string;
  readonly icon?: IconName;
  readonly kind?: string;
  readonly hideLabel?: boolean;
  readonly children: (close: () => void) => ComponentChildren;
}

export function Menu({ label, icon, kind = "button", hideLabel, children }: Props) {
  const [open, setOpen] = useState(false);
  const [right, setRight] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const toggle = (): void => {
    setRight((root.current?.getBoundingClientRect().left ?? 0) > innerWidth / 2);
    setOpen(!open);
  };
  // before the panel is painted: a key or click that follows at once is not lost
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
      document.removeEventListener("keydown", onKey);
    };
  }, [open]);
  return (
    <div class="menu" ref={root}>
      <button
        type="button"
        class={kind}
        aria-expanded={open}
        aria-label={hideLabel ? label : undefined}
        title={hideLabel ? label : undefined}
        onClick={toggle}
      >
        {icon && <Icon name={icon} />}
        {!hideLabel && <span class="menu-label">{label}</span>}
        {!icon && <Icon name="down" />}
      </button>
      {open && <div class={right ? "panel-menu right" : "panel-menu"}>{children(() => setOpen(false))}</div>}
    </div>
  );
}
