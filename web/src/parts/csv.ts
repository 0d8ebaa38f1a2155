/** Rows as a file of comma-separated values that no spreadsheet takes for formulas. */

const FORMULA = /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/; // also after spaces, and in the full width that spreadsheets accept
const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;

export function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  const text = String(value);
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(header: readonly string[], rows: readonly (readonly unknown[])[]): string {
  return [header, ...rows]
    .map((row) => row.map(cell).join(","))
    .join("\r\n")
    .concat("\r\n");
}

/** Offers a text to the user as a file. */
export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
