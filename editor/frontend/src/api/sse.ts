// Server-sent events, as far as the service sends them: `event:`, `id:` and `data:` lines, comments. Pure.
export interface Told {
  name: string;
  data: string;
}

/** Takes text in pieces of any size and gives each event once its empty line has come. */
export class EventParser {
  private rest = "";
  private name = "";
  private data: string[] = [];

  push(piece: string): Told[] {
    const told: Told[] = [];
    // Only the new text is searched: a picture's line comes in many pieces.
    let from = this.rest.length;
    const text = this.rest + piece;
    let start = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      const line = text.slice(start, text[end - 1] === "\r" && end > start ? end - 1 : end);
      start = from = end + 1;
      const event = this.line(line);
      if (event) told.push(event);
    }
    this.rest = text.slice(start);
    return told;
  }

  private line(line: string): Told | null {
    if (line === "") {
      const event = this.data.length > 0 ? { name: this.name || "message", data: this.data.join("\n") } : null;
      this.name = "";
      this.data = [];
      return event;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.name = value;
    else if (field === "data") this.data.push(value);
    return null;
  }
}

/** Every event of an answer, as JSON, until its end. */
export async function* eventsOf<T extends { event: string }>(answer: Response): AsyncGenerator<T> {
  if (!answer.body) return;
  const parser = new EventParser();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { name, data } of parser.push(value)) {
        yield { event: name, ...(JSON.parse(data) as object) } as T;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
