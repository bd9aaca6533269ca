// Text out of the page: to the clipboard, or as a file.

/** Whether it is on the clipboard. `root`: where a field may stand for a moment, inside the shadow root. */
export async function copyText(text: string, root: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Not over plain HTTP from elsewhere, or not allowed: the old way needs a field that is selected.
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

export function download(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
