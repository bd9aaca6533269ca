// The canvas shows the activity of the deployment that runs what is drawn, or else of the graph's.
import { shownOn } from "../store/deployments";
import type { Editor } from "../store/editor";
import { follow } from "../telemetry/activity";

export class Following {
  private readonly unsubscribe: () => void;

  constructor(private readonly editor: Editor) {
    this.unsubscribe = editor.store.subscribe(() => this.look());
    this.look();
  }

  dispose(): void {
    this.unsubscribe();
    follow(null);
  }

  private look(): void {
    const { scratch, deployed, documents } = this.editor.state;
    const found = shownOn(this.editor.state);
    const graph = found?.scratch ? scratch?.graph : deployed;
    follow(found?.id ?? null, graph ?? documents.graph);
  }
}
