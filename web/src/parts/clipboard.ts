/** Copies a text; also where a page is not served by HTTPS and browsers offer no clipboard to scripts. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const before = document.activeElement as HTMLElement | null;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "sr";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus();
  return done;
}

/** A request as a command for a shell. */
export function curl(address: string): string {
  return `curl -s '${address.replaceAll("'", "'\\''")}'`;
}
