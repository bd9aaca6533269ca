// How a modality looks: a colour of the theme and a glyph, so that colour never stands alone.
const GLYPHS: Record<string, string> = {
  text: "T",
  messages: "❝",
  tokens: "#",
  image: "▣",
  pixels: "▦",
  audio: "♪",
  waveform: "∿",
  video: "▶",
  bytes: "▯",
  codes: "≡",
  latents: "◆",
  embeddings: "▤",
  features: "▥",
  actions: "➤",
  state: "◎",
  scalar: "1",
  flag: "⚑",
  tensor: "▢",
};

/** `latents: float[n, 64]` -> `latents`. */
export function modalityOf(type: string): string {
  return type.split(":", 1)[0]?.trim() ?? "";
}

/** A list looks like its items: `list of pixels: float[3, h, w]` -> `pixels`. */
export function itemOf(type: string): string {
  return modalityOf(type).replace(/^list\s+of\s+/, "");
}

export function glyph(type: string): string {
  return GLYPHS[itemOf(type)] ?? "?";
}

export function color(type: string): string {
  const modality = itemOf(type);
  return modality in GLYPHS ? `var(--m-${modality})` : "var(--bad)";
}

export const MODALITIES = Object.keys(GLYPHS);
