// Exports from the page: to the clipboard, or as a file.

/** A browser has taken a download over by then. */
const TAKEN_MS = 60_000;

/** Returns true once it is on the clipboard. `root`: the place for a temporary field, inside the shadow root. */
export async function copyText(text: string, root: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP from elsewhere, or not allowed: a field that is selected can still be copied.
    return root !== null && copySelected(text, root);
  }
}

function copySelected(text: string, root: HTMLElement): boolean {
  const field = document.createElement("textarea");
  field.className = "visually-hidden";
  field.value = text;
  root.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}

export function download(name: string, content: BlobPart, mime = "text/plain"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: mime }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), TAKEN_MS);
}
