// Keeps the palette of an open graph as the service has it: plug-ins may have been added or changed meanwhile.
import { loadCatalogue } from "../catalogue/catalogue";
import type { Catalogue } from "../messages/answers";
import type { Editor } from "../store/editor";

export class Renewing {
  private readonly unsubscribe: () => void;
  private readonly stop = new AbortController();
  private versions: string;

  /** `target`: whose `focus` says that a person comes back from elsewhere, a terminal for example. */
  constructor(
    private readonly editor: Editor,
    private readonly load: () => Promise<Catalogue> = loadCatalogue,
    target: EventTarget = window,
  ) {
    this.versions = this.seen();
    target.addEventListener("focus", () => void this.renew(), { signal: this.stop.signal });
    this.unsubscribe = editor.store.subscribe(() => this.look());
  }

  dispose(): void {
    this.unsubscribe();
    this.stop.abort();
  }

  /** The palette stays the same object where nothing has changed; without an answer it stays as it was. */
  async renew(): Promise<void> {
    const found = await this.load().catch(() => null);
    if (!found || this.stop.signal.aborted) return;
    if (JSON.stringify(found) !== JSON.stringify(this.editor.state.catalogue))
      this.editor.store.setState({ catalogue: found });
  }

  /** A restart of a deployment reads plug-ins again: it shows as a version that comes, and then is gone. */
  private look(): void {
    const versions = this.seen();
    if (versions === this.versions) return;
    this.versions = versions;
    void this.renew();
  }

  private seen(): string {
    const { deployments } = this.editor.state;
    return JSON.stringify(Object.entries(deployments).map(([id, one]) => [id, one.next?.state ?? null]));
  }
}
