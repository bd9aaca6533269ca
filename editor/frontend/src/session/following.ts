// The canvas shows the activity of the deployment of the graph that is open.
import { deploymentOf } from "../store/deployments";
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
    const { deployments, name, deployed, documents } = this.editor.state;
    const found = deploymentOf(deployments, name);
    follow(found?.id ?? null, deployed ?? documents.graph);
  }
}
