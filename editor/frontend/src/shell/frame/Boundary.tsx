// A panel that breaks says so in its own place; the rest, and the document, go on.
import { Component, type ErrorInfo, type ReactNode } from "react";
import { Button } from "../../ui/kit";
import { strings } from "../../strings";

interface Props {
  /** The name of the contents for the user: "The inspector". */
  what: string;
  children: ReactNode;
}

export class Boundary extends Component<Props, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: Error } {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidCatch(error: Error, info: ErrorInfo): void {
    console.error(`${this.props.what} broke`, error, info.componentStack);
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div className="wg-broken" role="alert">
        <h2>{strings.shell.stoppedWorking(this.props.what)}</h2>
        <p>{strings.shell.yourDocumentIsSafe}</p>
        <Button onClick={() => this.setState({ error: null })}>{strings.shell.showItAgain}</Button>
        <details>
          <summary>{strings.shell.whatWentWrong}</summary>
          <pre>{error.stack ?? error.message}</pre>
        </details>
      </div>
    );
  }
}
