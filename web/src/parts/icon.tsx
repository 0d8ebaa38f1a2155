/** Small line icons, drawn here so that none has to be fetched. They stand beside words, never instead of them. */

const PATHS = {
  overview: "M3 3h7v9H3zM14 3h7v5h-7zM14 12h7v9h-7zM3 16h7v5H3z",
  gpu: "M4 7h16v10H4zM8 10h5v4H8zM7 17v3M11 17v3M15 17v3M20 10h2M20 14h2",
  node: "M4 4h16v6H4zM4 14h16v6H4zM7.5 7h.01M7.5 17h.01",
  workload: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  idle: "M12 3a9 9 0 1 0 9 9M12 7v5l3 2M16 3h5l-5 5h5",
  scheduling: "M4 6h16M4 12h10M4 18h6M17 14v6M14 17h6",
  namespace: "M4 5h6l2 3h8v11H4z",
  events: "M18 9a6 6 0 1 0-12 0c0 6-2.5 7-2.5 7h17S18 15 18 9M10 20a2 2 0 0 0 4 0",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M6 14v6",
  audit: "M5 4h14v17H5zM9 2h6v4H9zM8.5 13l2.5 2.5 4.5-4.5",
  doctor: "M3 12h4l3-7 4 14 3-7h4",
  docs: "M6 3h9l4 4v14H6zM14 3v5h5M9 13h7M9 17h7",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14M16 16l5 5",
  down: "M6 9l6 6 6-6",
  columns: "M4 4h16v16H4zM10 4v16M15 4v16",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12l5 5L20 7",
  clock: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18M12 7v5l4 2",
  collapse: "M4 4h16v16H4zM9 4v16M16 9l-3 3 3 3",
  expand: "M4 4h16v16H4zM9 4v16M13 9l3 3-3 3",
  menu: "M4 6h16M4 12h16M4 18h16",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5",
  system: "M3 4h18v12H3zM9 20h6M12 16v4",
  refresh: "M20 11a8 8 0 0 0-14.5-4M4 4v4h4M4 13a8 8 0 0 0 14.5 4M20 20v-4h-4",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  info: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18M12 11v5M12 8h.01",
  close: "M6 6l12 12M18 6L6 18",
  user: "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8M4 21a8 8 0 0 1 16 0",
  play: "M7 5l12 7-12 7z",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      class="icon"
      viewBox="0 0 24 24"
      width="16"
      height="16"
      aria-hidden="true"
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
