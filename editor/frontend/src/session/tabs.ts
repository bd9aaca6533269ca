// Tabs of one browser that have one document open: one edits, the others follow and read.

import { strings } from "../strings";

export type TabMessage =
  | { kind: "hello"; tab: string; since: number }
  | { kind: "here"; tab: string; since: number }
  | { kind: "take"; tab: string }
  | { kind: "yielded"; tab: string }
  | { kind: "saved"; tab: string }
  | { kind: "bye"; tab: string };

/** The used part of a BroadcastChannel. */
export interface Channel {
  postMessage: (message: TabMessage) => void;
  close: () => void;
  onmessage: ((event: MessageEvent<TabMessage>) => void) | null;
}

export interface TabEvents {
  /** Another tab edits; `reason` is for the user. */
  reading: (reason: string) => void;
  /** This tab edits from now on. */
  editing: () => void;
  /** The tab that edits, or did until now, has saved. */
  saved: () => void;
  /** Save what isn't before another tab takes over. */
  flush: () => Promise<void>;
}

const ELSEWHERE = strings.shell.thisDocumentIsOpen;
const TAKEN = strings.shell.anotherTabEditsThisDocument;
const LEFT = strings.shell.theTabThatEditedThis;
/** A tab that sleeps doesn't answer. */
const YIELD_MS = 800;

export class Tabs {
  private readonly tab = crypto.randomUUID();
  private since = 0;
  private channel: Channel | null = null;
  private role: "editing" | "reading" = "editing";
  private taken: (() => void) | null = null;

  constructor(
    private readonly open: () => Channel,
    private readonly events: TabEvents,
  ) {}

  get isEditing(): boolean {
    return this.role === "editing";
  }

  /** Come in: this tab edits unless another says that it does. */
  start(): void {
    if (this.channel) return;
    this.since = Date.now();
    this.role = "editing";
    this.channel = this.open();
    this.channel.onmessage = (event) => this.hear(event.data);
    this.channel.postMessage({ kind: "hello", tab: this.tab, since: this.since });
  }

  /** Edit here; the other tab saves and reads from now on. */
  async take(): Promise<void> {
    if (this.role === "editing") return;
    this.role = "editing";
    const yielded = new Promise<void>((resolve) => {
      this.taken = resolve;
      setTimeout(resolve, YIELD_MS);
    });
    this.say("take");
    await yielded;
    this.taken = null;
    if (this.role === "editing") this.events.editing();
  }

  /** Tell the readers that there is something new. */
  saved(): void {
    if (this.role === "editing") this.say("saved");
  }

  stop(): void {
    if (!this.channel) return;
    if (this.role === "editing") this.say("bye");
    this.channel.onmessage = null;
    this.channel.close();
    this.channel = null;
  }

  private hear(message: TabMessage): void {
    const editing = this.role === "editing";
    if (message.kind === "hello" && editing) this.answer(message);
    if (message.kind === "here" && editing && this.taken === null && this.isAfter(message)) this.read(ELSEWHERE);
    if (message.kind === "take" && editing) void this.yield(TAKEN);
    if (message.kind === "yielded") this.heardYielded();
    if (message.kind === "saved" && !editing) this.events.saved();
    if (message.kind === "bye" && !editing) this.events.reading(LEFT);
  }

  /** A tab that took longer than YIELD_MS has saved only now. */
  private heardYielded(): void {
    if (this.taken) this.taken();
    else if (this.role === "editing") this.events.saved();
  }

  /** If two tabs start within one millisecond, either may hear of the other first. */
  private answer(newcomer: { tab: string; since: number }): void {
    if (this.isAfter(newcomer)) void this.yield(ELSEWHERE);
    else this.channel?.postMessage({ kind: "here", tab: this.tab, since: this.since });
  }

  private isAfter(other: { tab: string; since: number }): boolean {
    return this.since === other.since ? this.tab > other.tab : this.since > other.since;
  }

  private async yield(reason: string): Promise<void> {
    this.role = "reading";
    try {
      await this.events.flush();
    } finally {
      this.say("yielded");
      this.events.reading(reason);
    }
  }

  private read(reason: string): void {
    this.role = "reading";
    this.events.reading(reason);
  }

  private say(kind: "take" | "yielded" | "saved" | "bye"): void {
    this.channel?.postMessage({ kind, tab: this.tab });
  }
}
